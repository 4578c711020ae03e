"""Schedule templates for operators that TVM's own rules leave slow; installs as
``tunerplugin.schedules``.

A template hands out a ``tunerplugin.space.Space`` and builds what was chosen from it; it never
imports the predictor.
"""
