"""T1 files: Kernel Tuner's description of a kernel and of its space.

Format: AutoTuningAssociation/T1, version 1.0.0; the parts read are ``General.BenchmarkName``,
``ConfigurationSpace`` and the problem size.  ``Values`` and ``Conditions`` are Python expressions
there; see ``expressions`` for those that are supported.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...errors import InputError
from ...space import Value
from .expressions import Expression, parse_expression
from .files import parameter_value, parse_json, read_text


@dataclass(frozen=True)
class SpaceFile:
    """A kernel's parameters in order, with their values, and the conditions over them."""

    kernel: str
    names: tuple[str, ...]
    domains: tuple[tuple[Value, ...], ...]
    conditions: tuple[Expression, ...]
    problem_size: tuple[Value, ...] = ()


def read_space_file(path: str | Path) -> SpaceFile:
    """Read a T1 file.  Raises ``InputError``, naming file and key, when it cannot be used."""
    place = Path(path)
    content = parse_json(read_text(place, InputError), place, InputError)
    space = _member(content, "ConfigurationSpace", dict, place)
    names: list[str] = []
    domains: list[tuple[Value, ...]] = []
    for number, entry in enumerate(_member(space, "TuningParameters", list, place)):
        where = f"parameter {number} of {place}"
        names.append(_member(entry, "Name", str, where))
        domains.append(_values(entry, f"{names[-1]!r} of {place}"))
    if not names or len(set(names)) != len(names):
        raise InputError(f"expected distinct parameters, at least one, in {place}, got {names}")
    conditions = [
        parse_expression(_member(entry, "Expression", str, f"condition {number} of {place}"), names)
        for number, entry in enumerate(space.get("Conditions") or [])
    ]
    kernel = _member(_member(content, "General", dict, place), "BenchmarkName", str, place)
    specification = content.get("KernelSpecification")
    size = specification.get("ProblemSize") if isinstance(specification, dict) else None
    return SpaceFile(kernel, tuple(names), tuple(domains), tuple(conditions), problem_size(size))


def problem_size(raw: Any) -> tuple[Value, ...]:
    """The extents of the problem, which the files write as a number, a list or not at all."""
    items = raw if isinstance(raw, list) else [raw]
    return tuple(value for item in items if (value := parameter_value(item)) is not None)


def _member(content: Any, key: str, kind: type, where: object) -> Any:
    found = content.get(key) if isinstance(content, Mapping) else None
    if not isinstance(found, kind):
        raise InputError(
            f"expected {key} to be a {kind.__name__} in {where}, got {found!r:.80}: "
            "correct the file"
        )
    return found


def _values(entry: Mapping[str, Any], where: str) -> tuple[Value, ...]:
    raw = entry.get("Values")
    listed = parse_expression(raw).evaluate({}) if isinstance(raw, str) else raw
    items = list(listed) if isinstance(listed, (list, tuple, range)) else []
    values = [value for item in items if (value := parameter_value(item)) is not None]
    if not values or len(values) != len(items) or len(set(values)) != len(values):
        raise InputError(
            f"expected a list of distinct numbers or texts as Values of {where}, "
            f"got {raw!r:.80}: correct the file"
        )
    return tuple(values)
