"""The names, default sizes and published parameter counts of the built-in workloads.

Importing this imports neither torch nor transformers; building a workload does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import networkx as nx

from ....errors import GraphError, InputError

if TYPE_CHECKING:
    import torch
    from torch import nn

    from ..layers import Recompute


@dataclass(frozen=True)
class Example:
    """A model on the ``meta`` device (no weights), its inputs, and the targets of its loss.

    No targets: the model computes its own loss from the inputs.
    """

    module: nn.Module
    inputs: tuple[Any, ...] | dict[str, Any]
    targets: tuple[torch.Tensor, ...] = ()


@dataclass(frozen=True)
class Spec:
    """A workload: ``build(batch, sequence)`` makes it; ``sequence`` is ``None`` for images.

    ``batch`` and ``sequence`` are defaults; those of the WHAM paper are not public, so
    ``source`` says where these come from.  ``parameters`` is the published count of the model.
    """

    summary: str
    build: Callable[[int, int], Example] = field(repr=False)
    batch: int
    sequence: int | None
    parameters: int
    source: str


def _images(name: str, size: int) -> Callable[[int, int], Example]:
    def build(batch: int, sequence: int) -> Example:
        import torch

        from . import inception, vision

        models: dict[str, Callable[[], nn.Module]] = {
            "resnet18": vision.resnet18,
            "resnext101": vision.resnext101,
            "vgg16": vision.VGG16,
            "mobilenet-v3": vision.MobileNetV3,
            "inception-v3": inception.InceptionV3,
        }
        labels = torch.empty(batch, dtype=torch.int64)
        return Example(models[name](), (torch.empty(batch, 3, size, size),), (labels,))

    return build


def _bert(name: str) -> Callable[[int, int], Example]:
    def build(batch: int, sequence: int) -> Example:
        from . import transformer

        shape = getattr(transformer, name)
        _check_sequence(sequence, shape.positions)
        tokens = _tokens(batch, sequence)
        return Example(transformer.Bert(shape), (tokens, tokens), (tokens,))

    return build


def _decoder(name: str) -> Callable[[int, int], Example]:
    def build(batch: int, sequence: int) -> Example:
        from . import transformer

        shape = getattr(transformer, name)
        _check_sequence(sequence, shape.positions)
        tokens = _tokens(batch, sequence)
        return Example(transformer.Decoder(shape), (tokens,), (tokens,))

    return build


def _gnmt(batch: int, sequence: int) -> Example:
    from .gnmt import Gnmt

    tokens = _tokens(batch, sequence)
    return Example(Gnmt(), (tokens, tokens), (tokens,))


def _huggingface(name: str) -> Callable[[int, int], Example]:
    def build(batch: int, sequence: int) -> Example:
        from .huggingface import build_model

        tokens = _tokens(batch, sequence)
        return Example(build_model(name), {"input_ids": tokens, "labels": tokens})

    return build


def _tokens(batch: int, sequence: int) -> torch.Tensor:
    import torch

    return torch.empty(batch, sequence, dtype=torch.int64)


def _check_sequence(sequence: int, longest: int) -> None:
    if sequence > longest:
        raise InputError(f"expected a sequence of at most {longest} tokens, got {sequence}")


_OURS = "chosen here: the usual sizes of single-device training"
_IMAGES = "chosen here: largest usual power of two on a 16-32 GB device"
_PAPER_LENGTH = "batch chosen here, sequence from the paper of the model"

WORKLOADS: dict[str, Spec] = {
    "resnet18": Spec("ResNet-18", _images("resnet18", 224), 128, None, 11_689_512, _IMAGES),
    "vgg16": Spec("VGG16", _images("vgg16", 224), 64, None, 138_357_544, _IMAGES),
    "mobilenet-v3": Spec(
        "MobileNetV3-large", _images("mobilenet-v3", 224), 128, None, 5_483_032, _IMAGES
    ),
    "inception-v3": Spec(
        "Inception-v3, no auxiliary classifier",
        _images("inception-v3", 299),
        64,
        None,
        23_834_568,
        _IMAGES,
    ),
    "resnext101": Spec(
        "ResNeXt-101 32x8d", _images("resnext101", 224), 16, None, 88_791_336, _IMAGES
    ),
    "gnmt": Spec("GNMT-style LSTM, 4 + 4 layers", _gnmt, 128, 25, 164_865_600, _OURS),
    "bert-base": Spec("BERT-base, masked LM", _bert("BERT_BASE"), 8, 128, 109_514_298, _OURS),
    "bert-large": Spec("BERT-large, masked LM", _bert("BERT_LARGE"), 8, 128, 335_174_458, _OURS),
    "gpt2-xl": Spec("GPT-2 XL, 1.5 B", _decoder("GPT2_XL"), 1, 1024, 1_557_611_200, _PAPER_LENGTH),
    "opt-1.3b": Spec("OPT-1.3B", _decoder("OPT_1_3B"), 1, 2048, 1_315_758_080, _PAPER_LENGTH),
    "gpt3": Spec("GPT-3, 175 B", _decoder("GPT3"), 1, 2048, 174_604_259_328, _PAPER_LENGTH),
    "t5": Spec(
        "T5-base, transformers' graph", _huggingface("t5"), 4, 512, 222_903_552, _PAPER_LENGTH
    ),
    "llama": Spec(
        "Llama-2-7B, transformers' graph",
        _huggingface("llama"),
        1,
        4096,
        6_738_415_616,
        _PAPER_LENGTH,
    ),
    "transformers/gpt2-xl": Spec(
        "GPT-2 XL, transformers' graph",
        _huggingface("gpt2-xl"),
        1,
        1024,
        1_557_611_200,
        _PAPER_LENGTH,
    ),
    "transformers/opt-1.3b": Spec(
        "OPT-1.3B, transformers' graph",
        _huggingface("opt-1.3b"),
        1,
        2048,
        1_315_758_080,
        _PAPER_LENGTH,
    ),
    "transformers/gpt3": Spec(
        "GPT-3, 175 B, transformers' graph",
        _huggingface("gpt3"),
        1,
        2048,
        174_604_259_328,
        _PAPER_LENGTH,
    ),
}

#: The eleven models of the kind WHAM was evaluated on (Adnan et al. 2024, arXiv 2404.14632).
WHAM_WORKLOADS = tuple(list(WORKLOADS)[:11])


def workload(
    name: str,
    batch: int | None = None,
    sequence: int | None = None,
    *,
    training: bool = True,
    optimizer: str | None = "adam",
    recompute: Recompute | str | bool = False,
    dtype: str = "bfloat16",
) -> nx.DiGraph:
    """The operator graph of a built-in workload; see ``from_torch`` for what it holds.

    ``batch`` (samples) and ``sequence`` (tokens per sample) default to those of
    ``WORKLOADS[name]``.  ``dtype`` is that of weights and activations; below 32 bits the optimiser
    keeps float32 master weights and state.  ``graph.graph`` also gets "batch" and "sequence".

    Raises ``InputError`` for an unknown name, a size or dtype that cannot be, and ``GraphError``
    where an extra is missing or the graph cannot be made.
    """
    spec = WORKLOADS.get(name)
    if spec is None:
        raise InputError(f"expected a workload of {', '.join(WORKLOADS)}, got {name!r}")
    if sequence is not None and spec.sequence is None:
        raise InputError(f"expected no sequence for {name}, whose samples are images")
    batch = spec.batch if batch is None else batch
    sequence = spec.sequence if sequence is None else sequence
    if batch < 1 or (sequence is not None and sequence < 1):
        raise InputError(f"expected sizes of at least 1, got batch {batch}, sequence {sequence}")
    graph = _trace(spec, name, batch, sequence, training, optimizer, recompute, dtype)
    graph.graph |= {"batch": batch, "sequence": sequence}
    return graph


def _trace(
    spec: Spec,
    name: str,
    batch: int,
    sequence: int | None,
    training: bool,
    optimizer: str | None,
    recompute: Recompute | str | bool,
    dtype: str,
) -> nx.DiGraph:
    import torch
    from torch.nn.functional import cross_entropy

    from ..torch_graph import from_torch

    types = {"bfloat16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32}
    if dtype not in types:
        raise InputError(f"expected a dtype of {', '.join(types)}, got {dtype!r}")

    def loss(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return cross_entropy(output.flatten(0, -2), target.flatten())

    with torch.device("meta"):
        example = spec.build(batch, sequence or 0)
        example.module.to(types[dtype])
        inputs: Any = example.inputs
        if isinstance(inputs, tuple):
            inputs = tuple(t.to(types[dtype]) if t.is_floating_point() else t for t in inputs)
    if not training and isinstance(inputs, dict):
        inputs = {key: value for key, value in inputs.items() if key != "labels"}
    if name == "t5" and not training:
        inputs |= {"decoder_input_ids": inputs["input_ids"]}
    try:
        return from_torch(
            example.module,
            inputs,
            loss=loss if example.targets else None,
            targets=example.targets,
            training=training,
            optimizer=optimizer,
            recompute=recompute,
            name=name,
        )
    except GraphError as error:
        raise GraphError(f"{name}: {error}") from error
