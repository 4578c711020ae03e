"""AutoTVM's knobs as tables of values.

A knob of AutoTVM is a list of entities (a split, an order of axes, annotations, an option).  An
entity is a row of values here, from the innermost level of a split outwards, and a knob of AutoTVM
becomes one knob of ours for each column that is not the same in all rows.  Whatever made the list
(divisors, powers of two with tails, candidates by hand, a filter), what exists at a prefix is what
the rows say, so the rows are exact.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

from tvm.autotvm.task.space import AnnotateEntity, OtherOptionEntity, ReorderEntity, SplitEntity

from ...errors import SpaceError
from ...space import Prefix, Value

#: AutoTVM's mark for the outermost factor, which is what the others leave
_RESTS = -1


class KnobTable:
    """One knob of AutoTVM.

    ``columns`` are the levels that tell the rows apart (of a split, 0 is the innermost), ``rows``
    their values by entity.  ``extent`` is the length of a split axis, 0 for other knobs.  Entities
    with equal rows do the same; the first stands for all of them.
    """

    def __init__(self, name: str, space: Any) -> None:
        self.name = name
        entities = [space[i] for i in range(len(space))]
        if not entities:
            raise SpaceError(f"expected an entity of knob {name!r} at least, got none")
        self.kind = _kind(entities[0])
        self.extent = int(space.product) if self.kind == "split" else 0
        self._spell = _spelling(entities)
        full = [self._spell(entity) for entity in entities]
        self.levels = len(full[0])
        if any(len(row) != self.levels for row in full):
            raise SpaceError(f"expected entities of one length for {name!r}, got {full}")
        self._outermost_rests = self.kind == "split" and all(row[-1] == _RESTS for row in full)
        self._index: dict[Prefix, int] = {}
        for index, row in enumerate(full):
            self._index.setdefault(row, index)
        self.columns = tuple(
            level for level in range(self.levels) if len({row[level] for row in full}) > 1
        )
        self.rows = [tuple(row[level] for level in self.columns) for row in full]
        self._row_index: dict[Prefix, int] = {}
        for index, row in enumerate(self.rows):
            self._row_index.setdefault(row, index)
        self._domains = _domains(self.rows, ascending=self.kind == "split")
        self._full = full

    def domain(self, decided: Prefix) -> tuple[Value, ...]:
        """Values of the next column after those ``decided``."""
        return self._domains[decided]

    def entity_index(self, row: Prefix) -> int:
        """The entity of a complete row."""
        return self._row_index[row]

    def row_of(self, entity: Any) -> Prefix | None:
        """The row of an entity of a log or of a template's default; ``None`` if it has none here.

        Defaults write the outermost factor out; where it is what the others leave, it is ignored.
        """
        if _kind(entity) != self.kind:
            return None
        row = self._spell(entity)
        if self._outermost_rests and row:
            row = (*row[:-1], _RESTS)
        index = self._index.get(row)
        return None if index is None else self.rows[index]

    def factors(self, row: Prefix) -> tuple[int, ...]:
        """All factors of a split, the innermost first; the outermost counts its loop's trips."""
        full = [int(value) for value in self._full[self._row_index[row]]]
        if full[-1] == _RESTS:
            full[-1] = -(-self.extent // math.prod(full[:-1]))
        return tuple(full)


def _kind(entity: Any) -> str:
    kinds = {
        SplitEntity: "split",
        ReorderEntity: "reorder",
        AnnotateEntity: "annotate",
        OtherOptionEntity: "option",
    }
    for known, kind in kinds.items():
        if isinstance(entity, known):
            return kind
    raise SpaceError(f"expected a split, reorder, annotate or option entity, got {entity!r}")


def _spelling(entities: Sequence[Any]) -> Any:
    """How entities of this knob are written: as values, or as text where values would agree."""
    distinct = len({repr(entity) for entity in entities})
    return _values if len({_values(entity) for entity in entities}) == distinct else _text


def _values(entity: Any) -> Prefix:
    if isinstance(entity, SplitEntity):
        return tuple(int(factor) for factor in reversed(entity.size))
    if isinstance(entity, ReorderEntity):
        return tuple(int(axis) for axis in entity.perm)
    if isinstance(entity, AnnotateEntity):
        return tuple(_plain(annotation) for annotation in entity.anns)
    return (_plain(entity.val),)


def _text(entity: Any) -> Prefix:
    return (repr(entity),)


def _plain(value: Any) -> Value:
    """A value as a word's; lists and tuples alike, as a log does not tell them apart."""
    if isinstance(value, (bool, int)):
        return int(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else repr(value)
    if isinstance(value, (list, tuple)):
        return json.dumps([_plain(item) for item in value])
    return str(value)


def _domains(rows: Sequence[Prefix], ascending: bool) -> dict[Prefix, tuple[Value, ...]]:
    """The values that follow each beginning of a row."""
    following: dict[Prefix, dict[Value, None]] = {}
    for row in rows:
        for length, value in enumerate(row):
            following.setdefault(row[:length], {})[value] = None
    if ascending:
        return {prefix: tuple(sorted(found, key=float)) for prefix, found in following.items()}
    return {prefix: tuple(found) for prefix, found in following.items()}
