"""The configuration space of an AutoTVM task as a ``Space``."""

from __future__ import annotations

import hashlib
import json
import math
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

from tvm.autotvm.task.space import ConfigEntity

from ...errors import SpaceError
from ...space import Constraint, Knob, Prefix, Space, Word
from .entities import KnobTable

#: changes when the order or meaning of knobs changes: old records then no longer apply
FORMAT = 1
#: configurations up to which a filter is asked about all of them, so that search meets no dead end
_ENUMERABLE = 1 << 16
#: elements of the longest vector register met (512 bits of float32)
WIDEST_VECTOR = 16


class TemplateSpace(Space):
    """The space that a template's calls of ``define_split`` and its like made.

    Exact: the legal assignments are AutoTVM's valid configurations, each once (entities that are
    equal make one).  ``constraints`` come on top of the template's own ``multi_filter``.
    """

    def __init__(self, config_space: Any, constraints: Sequence[Constraint] = ()) -> None:
        self.config_space = config_space
        self.tables = [KnobTable(str(n), s) for n, s in config_space.space_map.items()]
        self._slots = [(t, c) for t in self.tables for c in range(len(t.columns))]
        starts = [0]
        for table in self.tables:
            starts.append(starts[-1] + len(table.columns))
        self._parts = [slice(a, b) for a, b in zip(starts, starts[1:], strict=False)]
        self._knobs: dict[tuple[int, Prefix], Knob] = {}
        text = [[t.name, t.kind, t.extent, t.columns, t.rows] for t in self.tables]
        self.version = hashlib.sha256(json.dumps([FORMAT, text]).encode()).hexdigest()[:16]
        own = () if config_space._shared_filter is None else (TemplateFilter(self),)
        self.constraints = (*own, *constraints)

    def __len__(self) -> int:
        """How many knobs there are."""
        return len(self._slots)

    def knob(self, prefix: Prefix) -> Knob | None:
        """See ``Space.knob``."""
        position = len(prefix)
        if position >= len(self._slots):
            return None
        table, column = self._slots[position]
        decided = prefix[position - column :]
        key = (position, decided)
        if key not in self._knobs:
            self._knobs[key] = _make_knob(table, column, decided)
        return self._knobs[key]

    def rows(self, values: Prefix) -> list[Prefix]:
        """The values by knob of AutoTVM; of a prefix, what is decided."""
        return [values[part] for part in self._parts]

    def index_of(self, values: Prefix) -> int:
        """AutoTVM's index of a complete assignment.  Raises ``SpaceError`` for any other."""
        try:
            rows = zip(self.tables, self.rows(values), strict=True)
            entities = [table.entity_index(row) for table, row in rows]
        except KeyError as error:
            raise SpaceError(f"expected a configuration, got {values}") from error
        return int(self.config_space.knob2point(entities))

    def config(self, values: Prefix) -> Any:
        """The ``ConfigEntity`` of a complete assignment.

        Not ``ConfigSpace.get``, which asks a filter about every index before the first answer.
        """
        space = self.config_space
        return ConfigEntity(
            self.index_of(values), space.code_hash, self.entities(values), space._constraints
        )

    def entities(self, values: Prefix) -> OrderedDict[str, Any]:
        """AutoTVM's entities of a complete assignment, by knob."""
        found: OrderedDict[str, Any] = OrderedDict()
        for table, row in zip(self.tables, self.rows(values), strict=True):
            found[table.name] = self.config_space.space_map[table.name][table.entity_index(row)]
        return found

    def values_of(self, config: Any) -> Prefix | None:
        """The assignment that a configuration stands for; ``None`` if it lies outside.

        Entities count, not the index, which a log of another version of the template may have
        counted differently.
        """
        values: Prefix = ()
        if len(config._entity_map) != len(self.tables):
            return None
        for table in self.tables:
            entity = config._entity_map.get(table.name)
            row = None if entity is None else table.row_of(entity)
            if row is None:
                return None
            values += row
        return values if self.allows(values) else None

    def describe(self, values: Prefix) -> tuple[Word, ...]:
        """What each split amounts to inside each of its loops, and the innermost block of all."""
        words: list[Word] = []
        block = 1
        for table, row in zip(self.tables, self.rows(values), strict=True):
            if table.kind != "split":
                words += [(table.name, value) for value in row]
                continue
            factors = table.factors(row)
            for level in range(len(factors)):
                words.append((f"{table.name}.trips{level}", factors[level]))
                if level:
                    inside = math.prod(factors[: level + 1])
                    words.append((f"{table.name}.inside{level}", inside))
            words.append((f"{table.name}.lanes", math.gcd(factors[0], WIDEST_VECTOR)))
            block *= factors[0]
        return (*words, ("block", block))


class TemplateFilter(Constraint):
    """The template's own ``multi_filter``.

    Exact on prefixes in a space of at most 65,536 configurations; in a larger one it is asked
    about complete assignments only.
    """

    name = "multi_filter"

    def __init__(self, space: TemplateSpace) -> None:
        self._space = space
        self._valid: set[Prefix] | None = None
        self._prefixes: set[Prefix] | None = None

    def allows(self, prefix: Prefix) -> bool:
        """See ``Constraint.allows``."""
        space = self._space
        if space.config_space.range_length > _ENUMERABLE:
            return len(prefix) < len(space) or self._accepts(prefix)
        if self._prefixes is None:
            self._prefixes = self._enumerate()
        return prefix in self._prefixes

    def _accepts(self, values: Prefix) -> bool:
        return bool(self._space.config_space._shared_filter(self._space.entities(values)))

    def _enumerate(self) -> set[Prefix]:
        """Every prefix of a configuration that AutoTVM calls valid."""
        config_space, tables = self._space.config_space, self._space.tables
        found: set[Prefix] = set()
        for index in range(config_space.range_length):
            if config_space.is_index_valid(index):
                knobs = zip(tables, config_space.point2knob(index), strict=True)
                values = tuple(value for table, k in knobs for value in table.rows[k])
                found.update(values[:length] for length in range(len(values) + 1))
        return found


def _make_knob(table: KnobTable, column: int, decided: Prefix) -> Knob:
    level = table.columns[column]
    words: list[Word] = [("kind", table.kind), ("knob", table.name)]
    if table.levels > 1:
        words += [("level.from.inside", level), ("ways", table.levels)]
    if table.kind == "split":
        inside = math.prod(int(value) for value in decided)
        words += [("extent", table.extent), ("remaining", table.extent // max(1, inside))]
    name = table.name if table.levels == 1 else f"{table.name}.{level}"
    return Knob(name, tuple(words), table.domain(decided))
