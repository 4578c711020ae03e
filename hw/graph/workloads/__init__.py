"""Built-in workloads by name: ``workload("bert-base", training=True)`` is an operator graph."""

from __future__ import annotations

from .registry import WHAM_WORKLOADS, WORKLOADS, Spec, workload

__all__ = ["WHAM_WORKLOADS", "WORKLOADS", "Spec", "workload"]
