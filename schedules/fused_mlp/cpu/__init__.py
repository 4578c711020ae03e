"""Fused MLP kernels for CPUs (LLVM): inference and training."""

from .inference import TEMPLATE, fused_mlp, space, supports

__all__ = ["TEMPLATE", "fused_mlp", "space", "supports"]
