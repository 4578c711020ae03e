"""Accelerators as TOML files in which every number has a source, or says that it is estimated.

A table is a group of numbers; its ``source`` and ``estimated`` hold for all keys of the group, and
a key with another origin is written as an inline table::

    [memory]
    source = "https://example.org/datasheet"
    bytes = 17_179_869_184
    bytes_s = { value = 700e9, estimated = true, source = "between the two figures found" }

The optional table ``[published]`` states the peak that the vendor names, which the template must
reproduce within ``tolerance`` (relative).
"""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Any

from ..errors import InputError, TargetError
from .accelerator import Accelerator, checked

#: table -> its keys, each with the field of ``Accelerator`` that it fills
GROUPS: dict[str, dict[str, str]] = {
    "tensor": {
        "cores": "tensor_cores",
        "rows": "tensor_rows",
        "columns": "tensor_columns",
        "dataflow": "dataflow",
        "dtype": "dtype",
        "frequency_hz": "frequency_hz",
    },
    "vector": {"cores": "vector_cores", "lanes": "vector_lanes"},
    "buffers": {
        "shared_bytes": "shared_buffer_bytes",
        "core_bytes": "core_buffer_bytes",
        "bytes_s": "on_chip_bytes_s",
    },
    "memory": {"bytes": "memory_bytes", "bytes_s": "memory_bytes_s"},
    "links": {"count": "links", "bytes_s": "link_bytes_s", "topology": "topology"},
    "package": {"tdp_w": "tdp_w", "area_mm2": "area_mm2", "process_nm": "process_nm"},
}
_ORIGIN_KEYS = ("source", "estimated")
_DEFAULTED = {f.name for f in fields(Accelerator) if f.default is not MISSING}


@dataclass(frozen=True)
class Origin:
    """Where a number comes from.  ``estimated``: no source states it, ``source`` says why it."""

    source: str = ""
    estimated: bool = False


#: what the miner found and what a program computed
COMPUTED = Origin("computed by tunerplugin", estimated=True)


@dataclass(frozen=True)
class Published:
    """The vendor's peak (operations per second) and how far the template may be from it."""

    peak_flops: float
    tolerance: float
    source: str


@dataclass(frozen=True)
class Datasheet:
    """An accelerator, the origin of each of its fields, and what its vendor publishes."""

    accelerator: Accelerator
    title: str
    origins: Mapping[str, Origin] = field(default_factory=dict)
    published: Published | None = None

    @property
    def estimated(self) -> tuple[str, ...]:
        """The fields that no source states."""
        return tuple(key for key, origin in self.origins.items() if origin.estimated)


def load(path: str | os.PathLike[str]) -> Accelerator:
    """The accelerator of a TOML file; raises ``TargetError`` as ``load_datasheet``."""
    return load_datasheet(path).accelerator


def load_datasheet(path: str | os.PathLike[str]) -> Datasheet:
    """Read and check a TOML file.

    Raises ``InputError`` when it cannot be read and ``TargetError``, with file, key and what is
    allowed there, when it is no datasheet.
    """
    file = Path(path)
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"expected a readable accelerator file, got {file}: {error}") from error
    try:
        return _Reader(tomllib.loads(text)).read()
    except tomllib.TOMLDecodeError as error:
        raise TargetError(f"{file}: expected a TOML file, got a syntax error: {error}") from error
    except TargetError as error:
        raise TargetError(f"{file}: {error}") from error


def save(
    accelerator: Accelerator | Datasheet, path: str | os.PathLike[str], source: str | None = None
) -> Path:
    """Write a TOML file that ``load`` reads back equal; replaces an existing file whole.

    The numbers of a bare ``Accelerator`` are marked estimated, with ``source`` as the reason.
    Raises ``InputError`` when the file cannot be written.
    """
    sheet = accelerator if isinstance(accelerator, Datasheet) else _computed(accelerator, source)
    file = Path(path)
    part = file.with_name(f".{file.name}.{os.getpid()}.part")
    try:
        part.write_text(_as_toml(sheet), encoding="utf-8")
        os.replace(part, file)
    except OSError as error:
        raise InputError(f"expected a writable accelerator file, got {file}: {error}") from error
    return file


def _computed(accelerator: Accelerator, source: str | None) -> Datasheet:
    origin = Origin(source, estimated=True) if source else COMPUTED
    origins = {key: origin for key in accelerator.values() if key != "name"}
    return Datasheet(accelerator, accelerator.name, origins)


class _Reader:
    """Turns a parsed TOML document into a ``Datasheet``; its errors name the key."""

    def __init__(self, document: dict[str, Any]) -> None:
        self._document = document
        self._values: dict[str, Any] = {}
        self._origins: dict[str, Origin] = {}

    def read(self) -> Datasheet:
        _only(self._document, ("name", "title", *GROUPS, "published"), "")
        name = checked("name", self._document.get("name"))
        title = self._document.get("title", name)
        if not isinstance(title, str):
            raise TargetError(f"title: expected a text, got {title!r}")
        for table, keys in GROUPS.items():
            self._read_group(table, keys)
        return Datasheet(
            Accelerator(name=name, **self._values), title, self._origins, self._published()
        )

    def _read_group(self, table: str, keys: dict[str, str]) -> None:
        group = self._document.get(table)
        if group is None and set(keys.values()) <= _DEFAULTED:
            return
        if not isinstance(group, dict):
            raise TargetError(f"{table}: expected a table [{table}] with {', '.join(keys)}")
        _only(group, (*keys, *_ORIGIN_KEYS), f"{table}.")
        whole_group = read_origin(group, table)
        for key, name in keys.items():
            if key in group:
                self._read_value(f"{table}.{key}", name, group[key], whole_group)
            elif name not in _DEFAULTED:
                raise TargetError(f"{table}.{key}: expected a value, got none")

    def _read_value(self, key: str, name: str, value: Any, origin: Origin | None) -> None:
        if isinstance(value, dict):
            _only(value, ("value", *_ORIGIN_KEYS), f"{key}.")
            origin = read_origin(value, key)
            value = value.get("value")
        if origin is None:
            raise TargetError(
                f'{key}: expected source = "..." or estimated = true beside it or in its table'
            )
        try:
            self._values[name] = checked(name, value)
        except TargetError as error:
            raise TargetError(f"{key}{str(error)[len(name) :]}") from error
        self._origins[name] = origin

    def _published(self) -> Published | None:
        group = self._document.get("published")
        if group is None:
            return None
        keys = ("peak_flops", "tolerance", "source")
        if not isinstance(group, dict) or set(group) != set(keys):
            raise TargetError(f"published: expected a table with {', '.join(keys)}, got {group!r}")
        for key in keys[:2]:
            number = group[key]
            if isinstance(number, bool) or not isinstance(number, int | float) or number <= 0:
                raise TargetError(f"published.{key}: expected a number above 0, got {number!r}")
        return Published(float(group["peak_flops"]), float(group["tolerance"]), _source(group))


def _only(table: dict[str, Any], allowed: tuple[str, ...], prefix: str) -> None:
    for key in table:
        if key not in allowed:
            raise TargetError(f"{prefix}{key}: expected one of {', '.join(allowed)}")


def read_origin(table: dict[str, Any], key: str) -> Origin | None:
    """The origin that a table states, ``None`` if it states none.

    ``key`` names the table in errors (``TargetError``).
    """
    estimated = table.get("estimated", False)
    if not isinstance(estimated, bool):
        raise TargetError(f"{key}.estimated: expected true or false, got {estimated!r}")
    if "source" not in table:
        return Origin(estimated=True) if estimated else None
    return Origin(_source(table, f"{key}."), estimated)


def _source(table: dict[str, Any], prefix: str = "published.") -> str:
    source = table["source"]
    if not isinstance(source, str) or not source.strip():
        raise TargetError(f"{prefix}source: expected a text that names the source, got {source!r}")
    return source


def _as_toml(sheet: Datasheet) -> str:
    values = sheet.accelerator.values()
    lines = [f"name = {_literal(values['name'])}", f"title = {_literal(sheet.title)}"]
    for table, keys in GROUPS.items():
        present = {key: name for key, name in keys.items() if name in values}
        if not present:
            continue
        origins = [sheet.origins.get(name, COMPUTED) for name in present.values()]
        common = max(origins, key=origins.count)
        lines += ["", f"[{table}]", *_origin_lines(common)]
        for (key, name), origin in zip(present.items(), origins, strict=True):
            value = _literal(values[name])
            if origin != common:
                stated = ", ".join([f"value = {value}", *_origin_lines(origin)])
                value = f"{{ {stated} }}"
            lines.append(f"{key} = {value}")
    if sheet.published:
        lines += ["", "[published]"]
        lines += [f"{key} = {_literal(value)}" for key, value in vars(sheet.published).items()]
    return "\n".join(lines) + "\n"


def _origin_lines(origin: Origin) -> list[str]:
    lines = [f"source = {_literal(origin.source)}"] if origin.source else []
    return [*lines, "estimated = true"] if origin.estimated else lines


def _literal(value: str | float) -> str:
    """A TOML literal.  JSON's strings are basic strings of TOML, but for a raw DEL."""
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return repr(value)
