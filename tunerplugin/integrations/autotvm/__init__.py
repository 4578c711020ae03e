"""AutoTVM: its tasks tuned by our search, on a TVM of the Relay era.

The public names are in ``tunerplugin.autotvm``; start reading at ``tuner.Seq2SeqTuner``.  Nothing
is imported here: the worker processes load this package too.
"""
