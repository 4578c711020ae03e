"""The design space: what a search may choose, and what it takes from the reference chip.

A search chooses array sizes, core counts, lanes and the shared buffer.  Clock, number format,
dataflow, memory, links and the on-chip bandwidth are the reference's, so that all designs of a
space stand at the same memory and bandwidth.  Private buffers grow with the arrays as they do in
the reference: so many bytes for a multiply-accumulate unit.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from decimal import ROUND_CEILING, Decimal
from functools import cached_property

from ...errors import InputError, SpaceError
from ..accelerator import Accelerator
from ..estimate.design import area, power
from ..estimate.technology import Technology

_KIB, _MIB = 1 << 10, 1 << 20
_LEAST_CORE_BUFFER = _KIB


@dataclass(frozen=True, order=True)
class Point:
    """One choice of everything; the fields mean what they do in ``Accelerator``."""

    tensor_rows: int
    tensor_columns: int
    tensor_cores: int
    vector_lanes: int
    vector_cores: int
    shared_buffer_bytes: int

    def __str__(self) -> str:
        """``2x128x128 tensor, 2x1024 vector, 32 MiB``."""
        size = self.shared_buffer_bytes
        buffer = f"{size // _MIB} MiB" if size >= _MIB else f"{size / _KIB:g} KiB"
        return (
            f"{self.tensor_cores}x{self.tensor_rows}x{self.tensor_columns} tensor, "
            f"{self.vector_cores}x{self.vector_lanes} vector, {buffer}"
        )


#: the dimensions of a space, in order
DIMENSIONS = tuple(field.name for field in fields(Point))


def powers_of_two(least: int, most: int) -> tuple[int, ...]:
    """Powers of two from ``least`` on, up to ``most``."""
    return tuple(itertools.takewhile(lambda n: n <= most, (least << i for i in range(64))))


def core_counts(most: int) -> tuple[int, ...]:
    """1 to 16, 18, 20, 22, ...: neighbours lie at most an eighth apart from 8 on."""
    found = {i << shift for i in range(1, 16) for shift in range(most.bit_length())}
    return tuple(sorted(count for count in found if count <= most))


@dataclass(frozen=True)
class DesignSpace:
    """The values of each dimension, ascending.  Raises ``SpaceError`` where there are none.

    The default is WHAM's (msr-fiddle/phaze, Estimator/architecture.py) without arrays below
    16 x 16, whose vector width need not be the arrays', and with counts between powers of two.
    """

    reference: Accelerator
    tensor_rows: tuple[int, ...] = powers_of_two(16, 256)
    tensor_columns: tuple[int, ...] = powers_of_two(16, 256)
    tensor_cores: tuple[int, ...] = core_counts(512)
    vector_lanes: tuple[int, ...] = powers_of_two(16, 2048)
    vector_cores: tuple[int, ...] = core_counts(512)
    shared_buffer_bytes: tuple[int, ...] = powers_of_two(512 * _KIB, 128 * _MIB)

    def __post_init__(self) -> None:
        for name in DIMENSIONS:
            values = getattr(self, name)
            if not values or list(values) != sorted(set(values)) or values[0] < 1:
                raise SpaceError(f"{name}: expected ascending values of at least 1, got {values!r}")

    def __len__(self) -> int:
        size = 1
        for name in DIMENSIONS:
            size *= len(getattr(self, name))
        return size

    def __contains__(self, point: Point) -> bool:
        return all(getattr(point, name) in getattr(self, name) for name in DIMENSIONS)

    def points(self) -> Iterator[Point]:
        """All points, in ascending order."""
        for values in itertools.product(*(getattr(self, name) for name in DIMENSIONS)):
            yield Point(*values)

    @cached_property
    def smallest(self) -> Point:
        """The point with the least area and the least power."""
        return Point(*(getattr(self, name)[0] for name in DIMENSIONS))

    def moved(self, point: Point, dimension: str, steps: int) -> Point | None:
        """The point ``steps`` values up or down one dimension; ``None`` outside the space."""
        values: tuple[int, ...] = getattr(self, dimension)
        index = values.index(getattr(point, dimension)) + steps
        if not 0 <= index < len(values):
            return None
        return replace(point, **{dimension: values[index]})

    def nearest(self, chip: Accelerator) -> Point:
        """The greatest point that is no larger than ``chip`` in any dimension, where there is."""
        chosen = []
        for name in DIMENSIONS:
            values = getattr(self, name)
            chosen.append(max((v for v in values if v <= getattr(chip, name)), default=values[0]))
        return Point(*chosen)

    def design(self, point: Point, name: str | None = None) -> Accelerator:
        """The accelerator of a point; without a name it is called after its sizes."""
        base = self.reference
        units = base.tensor_rows * base.tensor_columns
        buffer = point.tensor_rows * point.tensor_columns * base.core_buffer_bytes // units
        return replace(
            base,
            name=name or _name(point),
            **{dimension: getattr(point, dimension) for dimension in DIMENSIONS},
            core_buffer_bytes=max(_LEAST_CORE_BUFFER, buffer),
            area_mm2=None,
            tdp_w=None,
            process_nm=None,
        )


def _name(point: Point) -> str:
    return (
        f"t{point.tensor_cores}x{point.tensor_rows}x{point.tensor_columns}"
        f"-v{point.vector_cores}x{point.vector_lanes}-{point.shared_buffer_bytes // _KIB}k"
    )


def upwards(value: float) -> str:
    """``value`` with four digits, rounded up: as a budget it holds what takes ``value``."""
    digits = 3 - math.floor(math.log10(value)) if value > 0 else 0
    step = Decimal(1).scaleb(-digits)
    return f"{float(Decimal(value).quantize(step, ROUND_CEILING)):.4g}"


@dataclass(frozen=True)
class Budget:
    """The most area and power that a design may have; ``None`` is no limit.

    Raises ``InputError`` for a limit that is not above 0.
    """

    area_mm2: float | None = None
    power_w: float | None = None

    def __post_init__(self) -> None:
        for name in ("area_mm2", "power_w"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise InputError(f"{name}: expected a budget above 0, got {value!r}")

    def allows(self, area_mm2: float, power_w: float) -> bool:
        """Whether a design of this area and power is within the budget."""
        # the reference's own area as the budget must allow the reference
        slack = 1 + 1e-9
        return (self.area_mm2 is None or area_mm2 <= self.area_mm2 * slack) and (
            self.power_w is None or power_w <= self.power_w * slack
        )

    @classmethod
    def of(cls, chip: Accelerator, technology: Technology) -> Budget:
        """The area and power of a chip under a technology."""
        return cls(area(chip, technology).total_mm2, power(chip, technology).total_w)

    def __str__(self) -> str:
        limits = ((self.area_mm2, "mm^2"), (self.power_w, "W"))
        stated = [f"{value:.4g} {unit}" for value, unit in limits if value is not None]
        return " and ".join(stated) or "no limit"
