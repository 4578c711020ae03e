"""Conformance suites: your test class inherits one and overrides one method (needs pytest)."""

from .records import RecordStoreConformance
from .spaces import ConstraintConformance, SpaceConformance

__all__ = ["ConstraintConformance", "RecordStoreConformance", "SpaceConformance"]
