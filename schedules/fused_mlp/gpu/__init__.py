"""Fused MLP kernels for Intel and AMD GPUs."""
