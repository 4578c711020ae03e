"""What a solver of MIOpen is: fields, their ranges, and the rules of its validity test."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterator
from typing import NamedTuple

from .problem import DEFAULT_LAYOUT, ConvProblem
from .rules import Rule, RuledSpace

Ranges = tuple[tuple[int, ...], ...]
Signature = tuple[Hashable, ...]


#: strides (height, width)
UNIT_STRIDE = ((1, 1),)
STRIDES_TO_2 = ((1, 1), (2, 2))


class Condition(NamedTuple):
    """One of the conditions of ``IsApplicable``, judged for a problem."""

    holds: bool
    expected: str
    got: object


class Solver(ABC):
    """One tunable solver, by the name under which databases keep its tuples.

    ``full`` is what a tuple may hold at all (MIOpen's ``IsValidValue``), ``searched`` what the
    exhaustive search walks by default.  ``directions``, ``dtypes``, ``filter_size`` (height, width;
    ``None``: any), ``padding`` (of both axes), ``strides``, ``dilated``, ``grouped`` and ``isas``
    (beginnings of their names) are conditions of ``IsApplicable``; of its workarounds for single
    devices and data types only those that hold for all recorded databases are told.
    """

    fields: tuple[str, ...]
    full: Ranges
    searched: Ranges
    directions: str
    dtypes: tuple[str, ...] = ("FP32", "FP16", "BF16", "BFP16")
    filter_size: tuple[int, int] | None = None
    padding: int | None = None
    strides: tuple[tuple[int, int], ...] | None = None
    dilated: bool = False
    grouped: bool = False
    isas: tuple[str, ...] = ("gfx",)
    #: whether the rules alone leave no dead ends (see ``RuledSpace``)
    closed: bool = False

    def __init__(self, name: str) -> None:
        self.name = name

    def ranges(self, p: ConvProblem, full: bool) -> Ranges:
        """The values of each field for a problem."""
        return self.full if full else self.searched

    @abstractmethod
    def rules(self, p: ConvProblem, isa: str, full: bool) -> list[Rule]:
        """The validity test for a problem on an instruction set (``"gfx906"``; may be empty)."""

    def signature(self, p: ConvProblem, isa: str, full: bool) -> Signature:
        """What the ranges and rules take from a problem: equal signatures, equal legal tuples."""
        return (p, isa)

    def conditions(self, p: ConvProblem) -> Iterator[Condition]:
        """What ``IsApplicable`` asks of a problem; solvers add their own."""
        directions, dtypes = " ".join(self.directions), " ".join(self.dtypes)
        filter_, padding, stride = (p.y, p.x), (p.pad_h, p.pad_w), (p.stride_h, p.stride_w)
        dilation, pad = (p.dilation_h, p.dilation_w), self.padding
        yield Condition(p.direction in self.directions, f"a direction in {directions}", p.direction)
        yield Condition(p.dtype in self.dtypes, f"a data type in {dtypes}", p.dtype)
        filter_fits = self.filter_size in (None, filter_)
        yield Condition(filter_fits, f"a filter of {self.filter_size}", filter_)
        yield Condition(pad is None or padding == (pad, pad), f"padding of {pad}", padding)
        strides = self.strides
        yield Condition(strides is None or stride in strides, f"strides in {strides}", stride)
        yield Condition(self.dilated or dilation == (1, 1), "no dilation", dilation)
        yield Condition(self.grouped or p.groups == 1, "one group", p.groups)
        yield Condition(p.layout == DEFAULT_LAYOUT, f"layout {DEFAULT_LAYOUT}", p.layout)

    def unsuitable(self, p: ConvProblem, isa: str = "") -> str:
        """Why the solver cannot compute a problem at all (on an instruction set), or nothing."""
        if isa and not isa.startswith(self.isas):
            return f"expected an instruction set {' or '.join(self.isas)}.., got {isa}"
        for condition in self.conditions(p):
            if not condition.holds:
                return f"expected {condition.expected}, got {condition.got}"
        return ""

    def space(self, p: ConvProblem, isa: str, full: bool) -> RuledSpace:
        """The legal tuples for a problem."""
        words = [(("solver", self.name), ("knob", field)) for field in self.fields]
        rules = self.rules(p, isa, full)
        return RuledSpace(self.fields, self.ranges(p, full), rules, words, self.closed)
