"""Finding chains of dense layers in a Relax module and fusing each into one kernel.

Start at ``fuse.FuseMLP``; ``graph`` finds the chains, ``rewrite`` replaces them.
"""

from ..graph.report import ChainReport
from .fuse import FuseMLP, analyse

__all__ = ["ChainReport", "FuseMLP", "analyse"]
