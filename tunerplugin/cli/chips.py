"""``tunerplugin chips [NAME ...]``: the accelerators that targets and mining know."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..errors import TargetError
from . import exits, options, render
from .exits import StopGuard
from .parser import Parser

if TYPE_CHECKING:
    from tunerplugin.hw.datasheet import Datasheet

_GROUPS = "tensor cores", "vector cores", "TFLOPS", "memory", "buffer", "TDP", "die", "estimated"


def add_parser(add: Callable[..., Parser]) -> Parser:
    """Declare the verb."""
    verb = add(
        "chips",
        parents=[options.common()],
        help="list the accelerators that targets and mining know",
        description="List the chips that are targets (tunerplugin/NAME), those of the folders in "
        "TUNERPLUGIN_CHIPS included; with names, show every number of these with its source.",
    )
    verb.add_argument("names", nargs="*", metavar="NAME", help="show these in full")
    return verb


def run(args: argparse.Namespace, guard: StopGuard) -> int:
    """List all chips, or show some in full."""
    from tunerplugin.hw.target import datasheets

    known = {sheet.accelerator.name: sheet for sheet in datasheets()}
    names = [name.removeprefix("tunerplugin/") for name in args.names]
    for name in names:
        if name not in known:
            raise TargetError(f"expected chips of {', '.join(known)}, got {name!r}")
    shown = [known[name] for name in names] or list(known.values())
    text = "\n\n".join(_details(sheet) for sheet in shown) if names else _table(shown)
    render.emit(args.format, {"verb": "chips", "chips": [_row(sheet) for sheet in shown]}, text)
    return exits.DONE


def _table(sheets: list[Datasheet]) -> str:
    rows = []
    for sheet in sheets:
        chip = sheet.accelerator
        rows.append(
            (
                chip.name,
                f"{chip.tensor_cores} x {chip.tensor_rows} x {chip.tensor_columns}",
                f"{chip.vector_cores} x {chip.vector_lanes}",
                f"{chip.peak_flops * 1e-12:.4g}",
                f"{chip.memory_bytes / 2**30:.4g} GiB, {chip.memory_bytes_s * 1e-9:.4g} GB/s",
                f"{chip.shared_buffer_bytes / 2**20:.4g} MiB",
                _known(chip.tdp_w, "W"),
                _known(chip.area_mm2, "mm^2"),
                len(sheet.estimated),
            )
        )
    return "\n".join(
        [
            render.table(("chip", *_GROUPS), rows),
            "estimated: how many numbers no source states; tunerplugin chips NAME shows them",
        ]
    )


def _known(value: float | None, unit: str) -> str:
    return "-" if value is None else f"{value:g} {unit}"


def _details(sheet: Datasheet) -> str:
    rows = []
    for key, value in sheet.accelerator.values().items():
        if key != "name":
            origin = sheet.origins.get(key)
            kind = "estimated" if origin is None or origin.estimated else "stated"
            text = value if isinstance(value, str) else f"{value:g}"
            rows.append((key, text, kind, origin.source if origin else ""))
    return "\n".join([sheet.title, render.table(("field", "value", "", "source"), rows)])


def _row(sheet: Datasheet) -> dict[str, Any]:
    """One chip for programs: its fields, its peak and the origin of every field."""
    return {
        "target": f"tunerplugin/{sheet.accelerator.name}",
        "title": sheet.title,
        **sheet.accelerator.values(),
        "peak_flops": sheet.accelerator.peak_flops,
        "published_peak_flops": sheet.published.peak_flops if sheet.published else None,
        "sources": {
            key: {"source": origin.source, "estimated": origin.estimated}
            for key, origin in sheet.origins.items()
        },
    }
