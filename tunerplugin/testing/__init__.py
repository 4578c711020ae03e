"""Conformance suites: your test class inherits one and overrides one method (needs pytest)."""

from .records import RecordStoreConformance

__all__ = ["RecordStoreConformance"]
