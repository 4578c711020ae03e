"""Finding chains of dense layers in a graph of tensor operators, whatever the IR.

Start at ``chains.find_chains``; ``values.Values`` is what a graph IR has to answer.
"""
