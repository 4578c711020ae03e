"""Weights on disk: safetensors with a header that says what they are.

Nothing here can run code from a file: no pickle, no ``torch.load``.  Whatever does not fit is
refused with one sentence (``WeightsError``).
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from ..errors import WeightsError
from .encoding import ENCODING_VERSION
from .layers import ModelConfig
from .model import Seq2Seq, build_model

FORMAT = "tunerplugin-predictor"
FORMAT_VERSION = 1

#: before the names of tables, which are no weights: what a source remembers beside the model
_TABLE = "table."
_TABLE_DTYPES = (torch.int16, torch.int32)

Table = NDArray[np.int16] | NDArray[np.int32]
"""Numbers that a source keeps beside the weights."""

_MAX_HEADER_BYTES = 1 << 20
_MAX_FILE_BYTES = 64 << 20


@dataclass(frozen=True)
class WeightsInfo:
    """What the weights were trained on, and under which licence they may be used."""

    training_data: str = "none"
    licence: str = "Apache-2.0"


def save_weights(
    model: Seq2Seq,
    path: str | Path,
    info: WeightsInfo | None = None,
    tables: Mapping[str, Table] | None = None,
) -> None:
    """Write the weights, and tables of integers beside them; the file appears whole or not at all.

    Raises ``WeightsError`` when a weight is not finite, ``OSError`` when it cannot write.
    """
    tensors = {name: tensor.contiguous() for name, tensor in model.state_dict().items()}
    damaged = [name for name, tensor in tensors.items() if not torch.isfinite(tensor).all()]
    if damaged:
        raise WeightsError(
            f"expected finite weights to save, got NaN or infinity in {damaged[0]}; train again"
        )
    for name, table in (tables or {}).items():
        tensors[f"{_TABLE}{name}"] = torch.from_numpy(table).contiguous()
    metadata = {
        "format": FORMAT,
        "format_version": str(FORMAT_VERSION),
        "encoding_version": str(ENCODING_VERSION),
        "config": json.dumps(asdict(model.config)),
        "sha256": tensors_sha256(tensors),
        **asdict(info or WeightsInfo()),
    }
    _write_atomically(Path(path), save(tensors, metadata))


def load_weights(path: str | Path) -> tuple[Seq2Seq, WeightsInfo, dict[str, Table]]:
    """Read and check weights, and the tables beside them.

    Raises ``WeightsError`` for whatever does not fit this version.
    """
    source = Path(path)
    _check_size(source)
    try:
        with safe_open(str(source), framework="pt") as file:
            metadata = dict(file.metadata() or {})
            model = build_model(_check_metadata(source, metadata), None)
            names = list(file.keys())
            weights = [name for name in names if not name.startswith(_TABLE)]
            _check_shapes(source, model, {n: tuple(file.get_slice(n).get_shape()) for n in weights})
            tensors = {name: file.get_tensor(name) for name in names}
    except SafetensorError as error:
        raise _refusal(source, "a whole safetensors file", f"a damaged one ({error})") from error
    _check_tensors(source, tensors, metadata["sha256"])
    model.load_state_dict({name: tensors[name] for name in weights}, assign=True)
    model.requires_grad_(True)
    named = [name for name in names if name.startswith(_TABLE)]
    tables = {name.removeprefix(_TABLE): tensors[name].numpy() for name in named}
    return model, WeightsInfo(metadata["training_data"], metadata["licence"]), tables


def tensors_sha256(tensors: dict[str, Tensor]) -> str:
    """Hash (hex) of names, dtypes, shapes and contents, in name order."""
    digest = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.contiguous().numpy().tobytes())
    return digest.hexdigest()


def _refusal(path: Path, expected: object, got: object) -> WeightsError:
    return WeightsError(
        f"expected {expected} in {path}, got {got}; copy the file again, or train new weights with "
        "this version (Predictor.fit, then Predictor.save)"
    )


def _write_atomically(target: Path, data: bytes) -> None:
    handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, target)
    except BaseException:
        os.unlink(temporary)
        raise


def _check_size(path: Path) -> None:
    """The first 8 bytes give the header's length: look before anything trusts it."""
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            head = file.read(8)
    except OSError as error:
        raise _refusal(path, "readable weights", error.strerror or error) from error
    header = int.from_bytes(head, "little")
    if size > _MAX_FILE_BYTES:
        raise _refusal(path, f"at most {_MAX_FILE_BYTES} bytes", size)
    if len(head) < 8 or header + 8 > size:
        raise _refusal(path, "a safetensors file", f"{size} bytes that are not one or are torn off")
    if header > _MAX_HEADER_BYTES:
        raise _refusal(path, f"a header of at most {_MAX_HEADER_BYTES} bytes", header)


def _check_metadata(path: Path, metadata: dict[str, str]) -> ModelConfig:
    expected = {
        "format": FORMAT,
        "format_version": str(FORMAT_VERSION),
        "encoding_version": str(ENCODING_VERSION),
    }
    for key, value in expected.items():
        if metadata.get(key) != value:
            raise _refusal(path, f"{key} {value}", metadata.get(key, "none"))
    for key in ("config", "sha256", "training_data", "licence"):
        if key not in metadata:
            raise _refusal(path, f"{key} in the header", "none")
    try:
        return ModelConfig(**json.loads(metadata["config"]))
    except (ValueError, TypeError, RecursionError) as error:
        got = f"{metadata['config'][:80]!r} ({error})"
        raise _refusal(path, "the sizes of a model", got) from error


def _check_shapes(path: Path, model: Seq2Seq, shapes: dict[str, tuple[int, ...]]) -> None:
    expected = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    for name in sorted(expected.keys() | shapes.keys()):
        if expected.get(name) != shapes.get(name):
            wanted = f"tensor {name} of shape {expected.get(name, 'none')}"
            raise _refusal(path, wanted, shapes.get(name, "none"))


def _check_tensors(path: Path, tensors: dict[str, Tensor], sha256: str) -> None:
    for name, tensor in tensors.items():
        wanted = _TABLE_DTYPES if name.startswith(_TABLE) else (torch.float32,)
        if tensor.dtype not in wanted:
            expected = " or ".join(str(dtype).removeprefix("torch.") for dtype in wanted)
            raise _refusal(path, f"{expected} in {name}", tensor.dtype)
    found = tensors_sha256(tensors)
    if found != sha256:
        raise _refusal(path, f"tensors with sha256 {sha256[:12]}", f"{found[:12]} (damaged)")
    for name, tensor in tensors.items():
        if not torch.isfinite(tensor).all():
            raise _refusal(path, f"finite numbers in {name}", "NaN or infinity")
