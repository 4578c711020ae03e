"""Other tuners' languages: their problems, spaces and records, read as ours.

Imports neither torch nor tvm.
"""
