"""Accelerators as TVM targets: ``Target("tunerplugin/tpu-v2")`` and back.

A chip is a target tag of kind ``ext_dev``, the only kind of TVM that takes features of one's own;
every field of ``Accelerator`` is a feature ``feature.tunerplugin.<field>`` and the name is the
target's ``model``.  A target may override what its tag says::

    Target({"tag": "tunerplugin/tpu-v2", "feature.tunerplugin.tensor_cores": 4})

Tags exist for the chips in ``chips/``, for the TOML files in the folders that the environment
variable ``TUNERPLUGIN_CHIPS`` lists, and for what ``register`` is given.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

from ..errors import InputError, TargetError
from .accelerator import FIELD_TYPES, Accelerator, checked
from .datasheet import Datasheet, load, load_datasheet

FEATURE = "feature.tunerplugin."
TAG = "tunerplugin/"
#: folders with TOML files of the user's own designs, separated as in PATH
CHIPS_VARIABLE = "TUNERPLUGIN_CHIPS"
_SHIPPED = Path(__file__).parent / "chips"
#: features of the tuner itself, read by its hardware limits; no fields of a chip
_TUNER_FEATURES = frozenset({"max_unroll", "max_local_memory_per_block"})
_registered: dict[str, Datasheet] = {}


def target_config(accelerator: Accelerator) -> dict[str, Any]:
    """The configuration that ``tvm.target.Target`` takes for this accelerator."""
    features = {FEATURE + key: value for key, value in accelerator.values().items()}
    del features[FEATURE + "name"]
    return {
        "kind": "ext_dev",
        "keys": ["tunerplugin", "ext_dev"],
        "device": "tunerplugin",
        "model": accelerator.name,
        **features,
    }


def is_accelerator(target: Any) -> bool:
    """Whether a ``tvm.target.Target`` describes an accelerator of this template."""
    return str(target.kind.name) == "ext_dev" and any(
        str(key).startswith(FEATURE) and str(key)[len(FEATURE) :] in FIELD_TYPES
        for key in target.attrs
    )


def from_target(target: Any) -> Accelerator:
    """The accelerator of a ``tvm.target.Target``, or of whatever its constructor takes.

    Raises ``TargetError`` when the target is unknown, is no accelerator, lacks a field, or has a
    feature or a value that no accelerator has.
    """
    made = _as_target(target)
    if not is_accelerator(made):
        raise TargetError(
            f"expected a target with {FEATURE}* features such as tunerplugin/tpu-v2, got {made}"
        )
    attrs = {str(key): value for key, value in made.attrs.items()}
    stated = {key[len(FEATURE) :]: attrs[key] for key in attrs if key.startswith(FEATURE)}
    return _build(str(attrs.get("model", "")), stated)


def _as_target(target: Any) -> Any:
    import tvm

    if isinstance(target, tvm.target.Target):
        return target
    register_all()  # nothing to do where the plug-in ran within ``import tvm``
    try:
        return tvm.target.Target(target)
    except (ValueError, TypeError, RuntimeError) as error:
        raise TargetError(
            f"expected a TVM target such as tunerplugin/tpu-v2, got {target!r}: "
            f"{str(error).strip().splitlines()[-1]}; known chips: {', '.join(known())}"
        ) from error


def _build(name: str, stated: Mapping[str, Any]) -> Accelerator:
    values: dict[str, Any] = {"name": name}
    for key, value in stated.items():
        if key in _TUNER_FEATURES:
            continue
        if key not in FIELD_TYPES or key == "name":
            allowed = ", ".join(field for field in FIELD_TYPES if field != "name")
            raise TargetError(f"{FEATURE}{key}: expected one of {allowed}")
        plain = str(value) if isinstance(value, str) else value
        try:
            values[key] = checked(key, plain)
        except TargetError as error:
            raise TargetError(f"{FEATURE}{error}") from error
    required = [field.name for field in fields(Accelerator) if field.default is MISSING]
    missing = [FEATURE + key for key in required if key not in values]
    if missing:
        raise TargetError(f"target {name!r}: expected {', '.join(missing)} too; or use a tag")
    return Accelerator(**values)


def register(accelerator: Accelerator | Datasheet, override: bool = False) -> Any:
    """Make ``Target("tunerplugin/<name>")`` mean this accelerator; the target is returned.

    Registering the same again changes nothing.  Raises ``TargetError`` when the name stands for
    another accelerator, unless ``override``, and under a TVM of the Relay era, whose targets take
    no features of one's own.
    """
    register_tag = _register_tag()
    sheet = accelerator if isinstance(accelerator, Datasheet) else _bare(accelerator)
    chip = sheet.accelerator
    before = _known_sheets().get(chip.name)
    if before is not None and before.accelerator != chip and not override:
        raise TargetError(
            f"expected a name that is free, got {chip.name!r}: it is another accelerator; "
            "rename yours or pass override=True"
        )
    _registered[chip.name] = sheet
    return register_tag(TAG + chip.name, target_config(chip), True)


def _register_tag() -> Any:
    try:
        from tvm.target import register_tag
    except ImportError as error:
        import tvm

        raise TargetError(
            f"expected a TVM whose targets take features (0.25 or later), got {tvm.__version__}: "
            "accelerators are no targets there; mine and estimate without them"
        ) from error
    return register_tag


def _bare(accelerator: Accelerator) -> Datasheet:
    return Datasheet(accelerator, accelerator.name)


def register_all() -> None:
    """Register the shipped chips and the user's; a user's file that is none is warned about."""
    register_tag = _register_tag()
    for sheet in _known_sheets().values():
        register_tag(TAG + sheet.accelerator.name, target_config(sheet.accelerator), True)


def datasheets() -> list[Datasheet]:
    """All known chips by name: shipped, from the user's folders, registered."""
    return [sheet for _, sheet in sorted(_known_sheets().items())]


def known() -> list[str]:
    """The names of all known chips."""
    return sorted(_known_sheets())


def chip(name_or_path: str | os.PathLike[str]) -> Accelerator:
    """The chip of a name (``tpu-v2``), a tag (``tunerplugin/tpu-v2``) or a TOML file.

    Raises ``TargetError`` with the names that there are.
    """
    text = os.fspath(name_or_path)
    if text.endswith(".toml"):
        return load(text)
    found = _known_sheets().get(text.removeprefix(TAG))
    if found is None:
        raise TargetError(f"expected a .toml file or one of {', '.join(known())}, got {text!r}")
    return found.accelerator


_read: dict[tuple[Path, int], Datasheet] = {}


def _known_sheets() -> dict[str, Datasheet]:
    sheets: dict[str, Datasheet] = {}
    for file in _files():
        try:
            sheet = _cached(file)
        except (TargetError, InputError) as error:
            if file.parent == _SHIPPED:
                raise
            warnings.warn(f"{CHIPS_VARIABLE}: left out: {error}", stacklevel=4)
            continue
        sheets[sheet.accelerator.name] = sheet
    return sheets | _registered


def _cached(file: Path) -> Datasheet:
    key = (file, file.stat().st_mtime_ns)
    if key not in _read:
        _read[key] = load_datasheet(file)
    return _read[key]


def _files() -> Iterator[Path]:
    """The shipped files, then the user's: a later file of the same name counts."""
    yield from sorted(_SHIPPED.glob("*.toml"))
    for folder in filter(None, os.environ.get(CHIPS_VARIABLE, "").split(os.pathsep)):
        if not Path(folder).is_dir():
            warnings.warn(f"{CHIPS_VARIABLE}: expected folders, got {folder!r}", stacklevel=4)
        yield from sorted(Path(folder).glob("*.toml"))
