"""What a solver of MIOpen is: fields, their ranges, and the rules of its validity test."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable

from .problem import DEFAULT_LAYOUT, ConvProblem
from .rules import Rule, RuledSpace

Ranges = tuple[tuple[int, ...], ...]
Signature = tuple[Hashable, ...]


class Solver(ABC):
    """One tunable solver, by the name under which databases keep its tuples.

    ``full`` is what a tuple may hold at all (MIOpen's ``IsValidValue``), ``searched`` what the
    exhaustive search walks by default.  ``directions``, ``dtypes``, ``filter_size`` (height, width;
    ``None``: any) and ``grouped`` are the first conditions of ``IsApplicable``.
    """

    fields: tuple[str, ...]
    full: Ranges
    searched: Ranges
    directions: str
    dtypes: tuple[str, ...] = ("FP32", "FP16", "BF16", "BFP16")
    filter_size: tuple[int, int] | None = None
    grouped: bool = False
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

    def unsuitable(self, p: ConvProblem) -> str:
        """Why the solver cannot compute a problem at all, or nothing."""
        if p.direction not in self.directions:
            return f"expected a direction in {' '.join(self.directions)}, got {p.direction}"
        if p.dtype not in self.dtypes:
            return f"expected a data type in {' '.join(self.dtypes)}, got {p.dtype}"
        if self.filter_size not in (None, (p.y, p.x)):
            return f"expected a filter of {self.filter_size}, got {(p.y, p.x)}"
        if p.groups > 1 and not self.grouped:
            return f"expected one group, got {p.groups}"
        if p.layout != DEFAULT_LAYOUT:
            return f"expected layout {DEFAULT_LAYOUT}, got {p.layout}"
        return ""

    def space(self, p: ConvProblem, isa: str, full: bool) -> RuledSpace:
        """The legal tuples for a problem."""
        words = [(("solver", self.name), ("knob", field)) for field in self.fields]
        rules = self.rules(p, isa, full)
        return RuledSpace(self.fields, self.ranges(p, full), rules, words, self.closed)
