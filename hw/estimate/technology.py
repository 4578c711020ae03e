"""Technology presets: area and energy of the parts of a chip, each constant with its source.

The presets in ``hw/technology/*.toml`` disagree on purpose: published SRAM alone spreads from 0.45
to 3 mm^2 per MB.  A result names its preset, and ``dataclasses.replace`` makes a variant, so that
a conclusion can be swept over them.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from pathlib import Path
from typing import Any

from ...errors import InputError, TargetError
from ..accelerator import real
from ..datasheet import Origin, read_origin

_FOLDER = Path(__file__).parents[1] / "technology"
_GROUPS = {
    "area": (
        "mac_um2",
        "vector_lane_um2",
        "sram_mm2_per_mib",
        "core_sram_mm2_per_mib",
        "memory_mm2_per_tb_s",
        "link_mm2",
        "other_share",
    ),
    "energy": (
        "mac_pj",
        "vector_op_pj",
        "sram_pj_per_byte",
        "memory_pj_per_byte",
        "static_w_per_mm2",
    ),
}
#: where a file leaves it out, it is as this other constant
_SAME_AS = {"core_sram_mm2_per_mib": "sram_mm2_per_mib"}


@dataclass(frozen=True)
class Technology:
    """Constants of one process, units in the names.

    ``mac_um2`` is one multiply-accumulate unit of a tensor core, ``vector_op_pj`` one cycle of one
    lane, ``other_share`` the part of a die that is none of the counted ones (0 to below 1).
    """

    name: str
    node_nm: float
    mac_um2: float
    vector_lane_um2: float
    sram_mm2_per_mib: float
    core_sram_mm2_per_mib: float
    memory_mm2_per_tb_s: float
    link_mm2: float
    other_share: float
    mac_pj: float
    vector_op_pj: float
    sram_pj_per_byte: float
    memory_pj_per_byte: float
    static_w_per_mm2: float
    title: str = ""
    origins: Mapping[str, Origin] = field(
        default_factory=dict, compare=False, repr=False, hash=False
    )

    def __post_init__(self) -> None:
        for item in fields(self):
            if item.type == "float":
                value = _number(item.name, getattr(self, item.name))
                object.__setattr__(self, item.name, value)


def _number(key: str, value: Any) -> float:
    number = real(value)
    if key == "other_share":
        if number is None or not 0 <= number < 1:
            raise TargetError(f"{key}: expected a share from 0 to below 1, got {value!r}")
    elif number is None or number < 0 or (key == "node_nm" and number == 0):
        raise TargetError(f"{key}: expected a finite number of at least 0, got {value!r}")
    return number


def technologies() -> list[str]:
    """The names of the presets."""
    return sorted(path.stem for path in _FOLDER.glob("*.toml"))


def technology(name_or_path: str | os.PathLike[str] | Technology) -> Technology:
    """A preset by name, or a technology from a TOML file.

    Raises ``InputError`` with the presets' names, and ``TargetError`` naming file and key for a
    file that is no technology.
    """
    if isinstance(name_or_path, Technology):
        return name_or_path
    text = os.fspath(name_or_path)
    if text.endswith(".toml"):
        return _load(Path(text))
    if text not in technologies():
        raise InputError(
            f"expected a .toml file or a technology of {', '.join(technologies())}, got {text!r}"
        )
    return _preset(text)


@cache
def _preset(name: str) -> Technology:
    return _load(_FOLDER / f"{name}.toml")


def _load(file: Path) -> Technology:
    try:
        document = tomllib.loads(file.read_text(encoding="utf-8"))
        return _parse(document)
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"expected a readable technology file, got {file}: {error}") from error
    except tomllib.TOMLDecodeError as error:
        raise TargetError(f"{file}: expected a TOML file, got a syntax error: {error}") from error
    except TargetError as error:
        raise TargetError(f"{file}: {error}") from error


def _parse(document: dict[str, Any]) -> Technology:
    top = ("name", "title", "node_nm", *_GROUPS)
    for key in document:
        if key not in top:
            raise TargetError(f"{key}: expected one of {', '.join(top)}")
    name, title = document.get("name"), document.get("title", "")
    if not isinstance(name, str) or not name or not isinstance(title, str):
        raise TargetError(f"name and title: expected texts, got {name!r} and {title!r}")
    values: dict[str, Any] = {"node_nm": document.get("node_nm")}
    origins: dict[str, Origin] = {}
    for table, keys in _GROUPS.items():
        _parse_group(table, keys, document.get(table), values, origins)
    return Technology(name=name, title=title, origins=origins, **values)


def _parse_group(
    table: str,
    keys: tuple[str, ...],
    group: Any,
    values: dict[str, Any],
    origins: dict[str, Origin],
) -> None:
    if not isinstance(group, dict):
        raise TargetError(f"{table}: expected a table [{table}] with {', '.join(keys)}")
    for key in group:
        if key not in keys:
            raise TargetError(f"{table}.{key}: expected one of {', '.join(keys)}")
    for key in keys:
        source = key if key in group else _SAME_AS.get(key, key)
        if source not in group:
            raise TargetError(f"{table}.{key}: expected a value, got none")
        entry = group[source]
        origin = read_origin(entry, f"{table}.{source}") if isinstance(entry, dict) else None
        if origin is None:
            raise TargetError(
                f'{table}.{source}: expected {{ value = ..., source = "..." }}, got {entry!r}'
            )
        values[key], origins[key] = entry.get("value"), origin
