"""CLBlast: which parameters its tuners found best on which device.

CLBlast ships, per kernel and precision, the best parameters on some 170 devices; on any other
device it uses a default for the vendor or architecture.  Here the records train a predictor that
translates what OpenCL says of a device into parameters.

    records = read_clblast("clblast_best_params.json")
    spaces = spaces_of(records)
    predictor = train(records).predictor
    device = ClblastDevice("NVIDIA", "GPU", "SM8.9", "NVIDIA GeForce RTX 4070")
    predict(predictor, spaces["Xgemm"], problem_of("Xgemm", "Single", device), top=5)

Format: a JSON list of objects with the keys kernel, precision, device_type, vendor, arch, device
and params (name to integer), flattened from CLBlast's ``src/database`` (Apache-2.0).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import InputError, RecordError
from ..predictor import Example, ModelConfig, OnStep, Predictor, TrainingConfig
from ..search import BeamSearch, Explored, Scorer
from ..space import ListSpace, Problem, Value, Word
from .kernel_tuner import Recorded, parameter_words
from .kernel_tuner.files import parse_json, read_text
from .trained import Trained

MODEL = ModelConfig(encoder="pooled")
TRAINING = TrainingConfig(batch_size=128, value_weight=0.0)
"""The records hold the best parameters only: there is nothing to compare."""
EPOCHS = 10

#: CLBlast's entry for devices that it has no own record of
DEFAULT = "(default)"

_PRECISION_BITS = {
    "Half": 16,
    "Single": 32,
    "Double": 64,
    "ComplexSingle": 64,
    "ComplexDouble": 128,
}
#: a longer number in a name is a serial, not a size
_MAX_DIGITS = 12
_TEXT_KEYS = ("kernel", "precision", "device_type", "vendor", "arch", "device")


@dataclass(frozen=True)
class ClblastDevice:
    """A device in CLBlast's words; ``kind`` is OpenCL's device type (GPU, CPU, Accelerator)."""

    vendor: str
    kind: str
    architecture: str
    name: str

    @property
    def words(self) -> tuple[Word, ...]:
        """Vendor, type, the architecture's family and number, and the parts of the name."""
        parts = re.findall(r"[a-z]+|\d+(?:\.\d+)?", self.architecture.lower())
        words: list[Word] = [("vendor", self.vendor), ("device_type", self.kind)]
        words.append(("architecture", self.architecture))
        words += [("architecture_part", _number_or_text(part)) for part in parts]
        names = dict.fromkeys(re.findall(r"[a-z]+|\d+", self.name.lower()))
        return (*words, *(("device_part", _number_or_text(part)) for part in names))


@dataclass(frozen=True)
class BestParameters:
    """One record: ``parameters`` in the order of the file."""

    kernel: str
    precision: str
    device: ClblastDevice
    parameters: tuple[tuple[str, int], ...]

    @property
    def values(self) -> tuple[int, ...]:
        """The candidate in the kernel's space."""
        return tuple(value for _, value in self.parameters)

    @property
    def problem(self) -> Problem:
        """What the parameters are an answer to."""
        return problem_of(self.kernel, self.precision, self.device)

    def to_json(self) -> dict[str, Any]:
        """The record as the file has it."""
        device = self.device
        return {
            "kernel": self.kernel,
            "precision": self.precision,
            "device_type": device.kind,
            "vendor": device.vendor,
            "arch": device.architecture,
            "device": device.name,
            "params": dict(self.parameters),
        }


class ClblastSpace(ListSpace):
    """The parameters of one kernel.

    Legal is what was best on some device: CLBlast's own rules for what may be combined hold for
    each of these, and a device's limits are not in the records.
    """

    def __init__(self, kernel: str, records: Sequence[BestParameters]) -> None:
        names = [name for name, _ in records[0].parameters]
        seen = sorted({record.values for record in records})
        domains = [tuple(sorted(set(column))) for column in zip(*seen, strict=True)]
        words = [(("kernel", kernel), *parameter_words(name)) for name in names]
        super().__init__(names, domains, [Recorded(seen)], words)
        self.kernel = kernel

    def parameters(self, values: Sequence[Value]) -> dict[str, int]:
        """A candidate as CLBlast takes it, e.g. in ``OverrideParameters``."""
        return {name: int(value) for name, value in zip(self.names, values, strict=True)}


def read_clblast(path: str | Path) -> tuple[BestParameters, ...]:
    """Read a file of records.

    Raises ``InputError`` when it cannot be opened, and ``RecordError``, naming the record, when it
    is damaged.
    """
    place = Path(path)
    content = parse_json(read_text(place, RecordError), place, RecordError)
    if not isinstance(content, list) or not content:
        raise RecordError(
            f"expected a list of records in {place}, got {type(content).__name__}: "
            "use the file of CLBlast's best parameters"
        )
    return tuple(_record(entry, f"record {i} of {place}") for i, entry in enumerate(content))


def problem_of(kernel: str, precision: str, device: ClblastDevice) -> Problem:
    """The words of choosing parameters for a kernel.  Raises ``InputError`` for the precision."""
    bits = _PRECISION_BITS.get(precision)
    if bits is None:
        known = ", ".join(_PRECISION_BITS)
        raise InputError(f"expected a precision of {known}, got {precision!r}: choose one")
    words = (("source", "clblast"), ("kernel", kernel), ("precision", precision), ("bits", bits))
    return Problem((*words, *device.words))


def spaces_of(records: Iterable[BestParameters]) -> dict[str, ClblastSpace]:
    """The space of each kernel.  Raises ``RecordError`` when one kernel's parameters differ."""
    by_kernel: dict[str, list[BestParameters]] = {}
    for record in records:
        by_kernel.setdefault(record.kernel, []).append(record)
    for kernel, group in by_kernel.items():
        names = {tuple(name for name, _ in record.parameters) for record in group}
        if len(names) != 1:
            raise RecordError(
                f"expected the same parameters in all records of {kernel}, got "
                f"{sorted(names)}: read one version's records at a time"
            )
    return {kernel: ClblastSpace(kernel, group) for kernel, group in by_kernel.items()}


def examples(
    records: Iterable[BestParameters], spaces: Mapping[str, ClblastSpace]
) -> list[Example]:
    """What a predictor learns from: each device's best parameters as a perfect answer.

    CLBlast's defaults are left out: they were computed from the other records.
    """
    return [
        Example(record.problem, spaces[record.kernel].steps(record.values), (), 1.0)
        for record in records
        if record.device.name != DEFAULT
    ]


def train(
    records: Sequence[BestParameters],
    seed: int = 0,
    epochs: int = EPOCHS,
    on_step: OnStep | None = None,
) -> Trained:
    """A predictor trained on all devices' best parameters.

    Raises ``RecordError`` when no record is of a device, or as ``spaces_of`` does.
    """
    found = examples(records, spaces_of(records))
    if not found:
        raise RecordError("expected records of devices, got defaults only: give CLBlast's own file")
    predictor = Predictor(seed, MODEL, TRAINING)
    report = predictor.fit(found, epochs=epochs, on_step=on_step)
    left_out = +Counter({"default, no device's record": len(records) - len(found)})
    return Trained(predictor, len(found), left_out, report.decision_loss)


def predict(
    scorer: Scorer, space: ClblastSpace, problem: Problem, top: int = 1
) -> list[dict[str, int]]:
    """The parameters that the scorer finds likeliest, best first; fewer where there are fewer."""
    beam = BeamSearch(problem, space, scorer, Explored(space))
    found = beam.search(top, np.random.default_rng(0), temperature=0.0)
    return [space.parameters(candidate.values) for candidate in found]


def _record(entry: Any, where: str) -> BestParameters:
    texts = [entry.get(key) if isinstance(entry, dict) else None for key in _TEXT_KEYS]
    parameters = entry.get("params") if isinstance(entry, dict) else None
    if not all(isinstance(text, str) for text in texts) or not isinstance(parameters, dict):
        raise RecordError(
            f"expected texts for {', '.join(_TEXT_KEYS)} and an object params in {where}, "
            f"got {entry!r:.80}: use the file of CLBlast's best parameters"
        )
    for name, value in parameters.items():
        if not isinstance(value, int) or isinstance(value, bool):
            raise RecordError(f"expected a whole number for {name} in {where}, got {value!r:.80}")
    if not parameters or texts[1] not in _PRECISION_BITS:
        raise RecordError(
            f"expected parameters and a precision of {', '.join(_PRECISION_BITS)} in {where}, "
            f"got {len(parameters)} parameters and {texts[1]!r}"
        )
    kernel, precision, kind, vendor, architecture, name = (str(text) for text in texts)
    device = ClblastDevice(vendor, kind, architecture, name)
    return BestParameters(kernel, precision, device, tuple(parameters.items()))


def _number_or_text(part: str) -> Value:
    if part.isalpha() or len(part) > _MAX_DIGITS:
        return part
    return float(part) if "." in part else int(part)
