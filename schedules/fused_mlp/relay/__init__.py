"""Fusing chains of dense layers of a Relay module into one kernel each.

Start at ``fuse.FuseMLP``; ``graph`` finds the chains, ``rewrite`` replaces them by calls of
``operator``, which Relay's own build compiles and AutoTVM tunes.
"""

from ..graph.report import ChainReport
from .fuse import FuseMLP, analyse

__all__ = ["ChainReport", "FuseMLP", "analyse"]
