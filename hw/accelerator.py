"""The architecture template: tensor cores and vector cores around a shared buffer.

The template is WHAM's (arXiv 2404.14632): ``tensor_cores`` systolic arrays of ``tensor_rows`` x
``tensor_columns`` multiply-accumulate units, each with a private buffer, and ``vector_cores`` of
``vector_lanes`` lanes; all share one on-chip buffer in front of the memory.  ``datasheet.py``
reads and writes it as TOML with a source for every number, ``target.py`` is its bridge to TVM.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any

from ..errors import TargetError

#: bytes of one element
DTYPE_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2, "float8": 1, "int8": 1}
#: weight, output and input stationary: the operand that stays in the array
DATAFLOWS = ("ws", "os", "is")
TOPOLOGIES = ("none", "ring", "mesh2d", "torus2d", "torus3d", "full", "switch")

_WORDS: dict[str, tuple[str, ...]] = {
    "dtype": tuple(DTYPE_BYTES),
    "dataflow": DATAFLOWS,
    "topology": TOPOLOGIES,
}
_OPTIONAL = {"tdp_w", "area_mm2", "process_nm"}
_MAY_BE_ZERO = {"links", "link_bytes_s"}
#: far above any machine, and low enough that no cycle count overflows 64 bits
_MOST_UNITS, _MOST_BYTES, _MOST_PER_SECOND = 1 << 20, 1 << 50, 1e18
_NAME_ALPHABET = frozenset("abcdefghijklmnopqrstuvwxyz0123456789.-_")


@dataclass(frozen=True)
class Accelerator:
    """One chip of the template.  Raises ``TargetError`` for a value that no chip can have.

    Sizes in bytes, bandwidths in bytes per second.  ``tdp_w``, ``area_mm2`` (the die) and
    ``process_nm`` are ``None`` where they are not known.
    """

    name: str
    #: systolic arrays, each of ``tensor_rows`` x ``tensor_columns`` multiply-accumulate units
    tensor_cores: int
    tensor_rows: int
    tensor_columns: int
    #: vector units, each of ``vector_lanes`` elements per cycle
    vector_cores: int
    vector_lanes: int
    frequency_hz: float
    #: of the tensor cores' operands
    dtype: str
    dataflow: str
    #: on-chip buffer that all cores share
    shared_buffer_bytes: int
    #: private buffer of one tensor core
    core_buffer_bytes: int
    memory_bytes: int
    memory_bytes_s: float
    #: between the shared buffer and the cores, all together
    on_chip_bytes_s: float
    #: to other chips; ``link_bytes_s`` is one link in one direction
    links: int = 0
    link_bytes_s: float = 0.0
    topology: str = "none"
    tdp_w: float | None = None
    area_mm2: float | None = None
    process_nm: float | None = None

    def __post_init__(self) -> None:
        for field in fields(self):
            value = checked(field.name, getattr(self, field.name))
            object.__setattr__(self, field.name, value)

    @property
    def element_bytes(self) -> int:
        """Bytes of one operand element of the tensor cores."""
        return DTYPE_BYTES[self.dtype]

    @property
    def macs(self) -> int:
        """Multiply-accumulate units of all tensor cores."""
        return self.tensor_cores * self.tensor_rows * self.tensor_columns

    @property
    def peak_flops(self) -> float:
        """Operations per second of all tensor cores, a multiply-accumulate being two."""
        return 2.0 * self.macs * self.frequency_hz

    @property
    def peak_vector_flops(self) -> float:
        """Operations per second of all vector cores, one per lane and cycle."""
        return float(self.vector_cores * self.vector_lanes) * self.frequency_hz

    @classmethod
    def from_target(cls, target: Any) -> Accelerator:
        """The accelerator that a TVM target describes; ``target.from_target`` says more."""
        from .target import from_target

        return from_target(target)

    def values(self) -> dict[str, Any]:
        """Field -> value, without the fields that are not known."""
        named = {field.name: getattr(self, field.name) for field in fields(self)}
        return {key: value for key, value in named.items() if value is not None}


#: field -> "str", "int", "float" or "float | None", as declared
FIELD_TYPES = {field.name: str(field.type) for field in fields(Accelerator)}


def checked(key: str, value: Any) -> Any:
    """``value`` as field ``key`` stores it; raises ``TargetError`` naming what it may be."""
    if value is None and key in _OPTIONAL:
        return None
    if key == "name":
        return _checked_name(value)
    if key in _WORDS:
        if value not in _WORDS[key]:
            raise _refused(key, f"one of {', '.join(_WORDS[key])}", value)
        return value
    whole = FIELD_TYPES[key] == "int"
    least = 0 if key in _MAY_BE_ZERO else 1 if whole else None
    number = _whole(value) if whole else real(value)
    if number is None or (number < least if least is not None else number <= 0):
        kind = "a whole number" if whole else "a finite number"
        raise _refused(
            key, f"{kind} {'above 0' if least is None else f'of at least {least}'}", value
        )
    most = _MOST_PER_SECOND if not whole else _MOST_BYTES if "bytes" in key else _MOST_UNITS
    if number > most:
        raise _refused(key, f"a number of at most {most:g}", value)
    return number


def _checked_name(value: Any) -> str:
    if not isinstance(value, str) or not value or not set(value) <= _NAME_ALPHABET:
        raise _refused("name", "lower-case letters, digits, dots, dashes and underscores", value)
    return value


def _whole(value: Any) -> int | None:
    """``2.0`` counts as whole: TOML's ``32e9`` is a float."""
    number = real(value)
    return int(number) if number is not None and number == int(number) else None


def real(value: Any) -> float | None:
    """``value`` as a float; ``None`` for what is no finite number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def _refused(key: str, expected: str, value: Any) -> TargetError:
    return TargetError(f"{key}: expected {expected}, got {value!r}")
