"""Cycles, bytes, energy and area of operators and designs."""
