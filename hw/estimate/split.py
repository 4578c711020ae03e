"""Ways to split one matrix product over several cores: by batch, by rows and by columns.

The ways for few cores are among those for more cores, so the best of them cannot get worse with
more cores.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True)
class Split:
    """Into how many parts batch, m and n of a product are cut; one core per part."""

    batch: int = 1
    m: int = 1
    n: int = 1

    @property
    def cores(self) -> int:
        """Cores that work."""
        return self.batch * self.m * self.n


def parts(cores: int) -> list[int]:
    """1 to 8, then these times powers of two, up to ``cores``: 1..8, 10, 12, 14, 16, 20, ..."""
    found = {i << shift for i in range(1, 9) for shift in range(max(cores, 1).bit_length())}
    return sorted(i for i in found if i <= cores)


@cache
def splits(cores: int) -> npt.NDArray[np.int64]:
    """All (batch, m, n) parts for at most ``cores`` cores, fewest cores first; shape (ways, 3)."""
    ways = [
        (batch, m, n)
        for batch in parts(cores)
        for m in parts(cores // batch)
        for n in parts(cores // batch // m)
    ]
    ways.sort(key=lambda way: (way[0] * way[1] * way[2], way))
    table = np.array(ways, dtype=np.int64)
    table.flags.writeable = False
    return table
