"""Other tuners' languages: their problems, spaces and records, read as ours.

Never imports tvm; ``miopen`` does not load torch either.
"""
