"""Bytes that a matrix product moves through a buffer of a given size.

Half of the buffer holds what is reused, the other half double-buffers what streams past.  Three
ways to block (m, k) x (k, n) are compared and the cheapest counts (Goto and van de Geijn, ACM TOMS
2008, name them panel-panel, panel-block and block-panel):

* panels of B stay and A is read once per panel;
* panels of A stay and B is read once per panel;
* tiles of C stay as 4-byte accumulators: A is read once per column of tiles, B once per row.

Each choice moves no more bytes when the buffer grows, so their minimum does not either.
"""

from __future__ import annotations

from typing import Any

import numpy as np

_ACCUMULATOR_BYTES = 4
#: columns of C tiles that are tried: powers of two, the same for every buffer size
_TILE_COLUMNS = tuple(2**i for i in range(15))


def gemm_traffic(
    m: Any, n: Any, batch: Any, a_bytes: Any, b_bytes: Any, c_bytes: Any, buffer_bytes: Any
) -> Any:
    """Bytes between a buffer of ``buffer_bytes`` and the level above it.

    ``a_bytes``, ``b_bytes`` and ``c_bytes`` are the operands of all ``batch`` products of an
    m x n result each.  Arrays broadcast; the result is an array of floats.
    """
    half = np.maximum(np.asarray(buffer_bytes, dtype=np.float64) / 2, 1.0)
    a, b, c = (np.asarray(x, dtype=np.float64) for x in (a_bytes, b_bytes, c_bytes))
    m, n, batch = (np.asarray(x, dtype=np.float64) for x in (m, n, batch))
    b_panels = np.minimum(np.maximum(np.ceil(b / batch / half), 1), n)
    a_panels = np.minimum(np.maximum(np.ceil(a / batch / half), 1), m)
    # a panel of one column that does not fit is no panel: then only tiles of C are left
    b_fits, a_fits = b / batch / n <= half, a / batch / m <= half
    best = np.where(b_fits, a * b_panels + b, np.inf)
    best = np.minimum(best, np.where(a_fits, b * a_panels + a, np.inf))
    best = np.minimum(best, a * n + b * m)  # one accumulator: nothing is reused
    tiles = np.ceil(m * n * _ACCUMULATOR_BYTES / half)
    for tried in _TILE_COLUMNS:
        columns = np.minimum(tried, n)
        rows = np.ceil(tiles / columns)
        best = np.minimum(best, np.where(rows <= m, a * columns + b * rows, np.inf))
    return best + c
