"""Accelerators as data, and what a workload costs on them; installs as ``tunerplugin.hw``."""
