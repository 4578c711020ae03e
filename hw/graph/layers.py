"""Which module is running, and which modules are recomputed in the backward pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from ...errors import GraphError


class Recompute(StrEnum):
    """What is computed again in the backward pass instead of being kept (activation
    checkpointing, Chen et al. 2016, arXiv 1604.06174)."""

    NONE = "none"
    BLOCK = "block"  # every repeated block by itself: only the blocks' inputs are kept
    WHOLE = "whole"  # the whole model as one: only its input is kept


def repeated_blocks(module: nn.Module) -> list[str]:
    """Paths of the outermost repeated blocks: two or more children of one class in one
    ``nn.ModuleList`` or ``nn.Sequential``, with parameters and modules of their own, and no mere
    containers themselves."""
    found: list[str] = []
    containers = (nn.ModuleList, nn.Sequential)
    for path, child in module.named_modules():
        if any(path.startswith(f"{block}.") for block in found):
            continue
        if isinstance(child, containers):
            classes = [type(block) for block in child]
            for name, block in child.named_children():
                own = next(block.parameters(), None) is not None and any(block.children())
                if own and not isinstance(block, containers) and classes.count(type(block)) > 1:
                    found.append(f"{path}.{name}" if path else name)
    return found


@contextmanager
def track(module: nn.Module, stack: list[str], recompute: Recompute) -> Iterator[None]:
    """While this lasts, every module's forward keeps its path on ``stack``, and what
    ``recompute`` names runs under ``torch.utils.checkpoint``.

    Raises ``GraphError`` when blocks are to be recomputed and the module has none.
    """
    chosen = {
        Recompute.NONE: [],
        Recompute.WHOLE: [""],
        Recompute.BLOCK: repeated_blocks(module),
    }[recompute]
    if recompute == Recompute.BLOCK and not chosen:
        raise GraphError(
            "expected repeated blocks to recompute, got a module without any; "
            "recompute the whole of it (recompute='whole')"
        )
    patched: list[nn.Module] = []
    try:
        for path, child in module.named_modules():
            if "forward" in vars(child):
                raise GraphError(
                    f"expected an unpatched module, got {path or type(module).__name__!r} with a "
                    "forward of its own instance"
                )
            child.forward = _tracked(child.forward, path, stack, path in chosen)
            patched.append(child)
        yield
    finally:
        for child in patched:
            del child.forward


def _tracked(
    forward: Callable[..., Any], path: str, stack: list[str], recompute: bool
) -> Callable[..., Any]:
    def run(*args: Any, **kwargs: Any) -> Any:
        stack.append(path)
        try:
            return forward(*args, **kwargs)
        finally:
            stack.pop()

    def run_again(*args: Any, **kwargs: Any) -> Any:
        # Fake tensors have no random state to keep.
        return checkpoint(run, *args, use_reentrant=False, preserve_rng_state=False, **kwargs)

    return run_again if recompute and torch.is_grad_enabled() else run
