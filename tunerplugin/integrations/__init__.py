"""Adapters between tuners of others and the TVM-free core."""
