"""Fully fused multi-layer perceptrons: all layers in one kernel (Yuan et al., arXiv 2403.17607).

Start at ``description.MLP``; every template below takes one.
"""

from .description import MLP, Activation, Residual

__all__ = ["MLP", "Activation", "Residual"]
