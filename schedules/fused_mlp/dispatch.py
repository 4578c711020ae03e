"""From a TVM target to the template that builds for it and the device that it stands for."""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any

from tunerplugin.errors import TargetError

from .description import MLP
from .devices import DG2, GFX90A, GFX942, GFX1100, GFX1201, PVC, Device, cpu_device
from .template import Template

# Target kind -> (module, name) of its templates, the fastest first; the last runs anywhere.
_TEMPLATES: dict[str, tuple[tuple[str, str], ...]] = {
    "llvm": ((".cpu.inference", "TEMPLATE"),),
    "opencl": ((".gpu.intel", "XMX_PVC"), (".gpu.intel", "XMX_DG2"), (".gpu.opencl", "PLAIN")),
    "rocm": ((".gpu.amd", "MATRIX"), (".gpu.amd", "PLAIN")),
}
# What a target may be called, in its attributes "mcpu", "model" or "device" -> device.
_DEVICES: dict[str, Device] = {
    "pvc": PVC,
    "max_1550": PVC,
    "dg2": DG2,
    "acm-g10": DG2,
    "arc": DG2,
    "gfx90a": GFX90A,
    "gfx942": GFX942,
    "gfx1100": GFX1100,
    "gfx1201": GFX1201,
}


def as_target(target: Any) -> Any:
    """A ``tvm.target.Target`` of a target or of what makes one (a name, a dictionary)."""
    from tvm.target import Target

    return target if isinstance(target, Target) else Target(target)


def current_target() -> Any:
    """The target of the ``with`` around the caller.  Raises ``TargetError`` where there is none."""
    from tvm.target import Target

    target = Target.current(allow_none=True)
    if target is None:
        raise TargetError("expected a target, FuseMLP(target) or `with target:` around the pass")
    return target


def templates_for(target: Any) -> tuple[Template, ...]:
    """The templates of a target's kind, the fastest first; empty where there is none."""
    kind = str(as_target(target).kind.name)
    return tuple(
        getattr(import_module(module, __package__), name)
        for module, name in _TEMPLATES.get(kind, ())
    )


def select(mlp: MLP, target: Any, *, standalone: bool = True) -> tuple[Template | None, str]:
    """The fastest template that supports ``mlp`` on ``target``, or None and why in one line.

    ``standalone``: whether kernels may be functions of their own (``Template.standalone``).
    """
    target = as_target(target)
    templates = templates_for(target)
    if not templates:
        known = ", ".join(_TEMPLATES)
        return None, f"no template for target kind {target.kind.name}, expected one of {known}"
    refusals = []
    for template in templates:
        if template.standalone and not standalone:
            refusals.append(f"{template.name}: its kernel cannot be a part of an operator")
            continue
        refusal = template.supports(mlp, target)
        if refusal is None:
            return template, f"template {template.name}"
        refusals.append(f"{template.name}: {refusal}")
    return None, "; ".join(refusals)


def device_for(target: Any) -> Device | None:
    """The device a target names by ``mcpu``, ``model`` or ``device``; a CPU of as many cores as
    TVM would use for ``llvm``; None where nothing is known of the device."""
    target = as_target(target)
    if target.kind.name == "llvm":
        cores = target.attrs.get("num-cores")
        return cpu_device(int(cores) if cores is not None else os.cpu_count() or 1)
    for attribute in ("mcpu", "model", "device"):
        device = _DEVICES.get(str(target.attrs.get(attribute, "")).lower())
        if device is not None:
            return device
    return None
