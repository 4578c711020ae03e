"""A stock ``LocalBuilder`` that is ready within seconds.

TVM's default build function imports every tensor intrinsic in every worker, which takes 30 to 80
seconds on a slow core, longer than the builder's own deadline: then nothing at all is measured.
After postprocessing a candidate needs none of them.
"""

from __future__ import annotations

from typing import Any

import cloudpickle

from ...measure import available_cores
from .. import compat

#: a worker's start (importing TVM) counts towards TVM's deadline of its first build
_DEADLINE_S = 120.0


def local_builder(jobs: int | None = None) -> Any:
    """A builder for ``tune_tir`` and ``tune_relax`` with ``jobs`` workers (default: all cores)."""
    # The build function is sent to the workers as code: they need not have this package.
    cloudpickle.register_pickle_by_value(compat)
    return compat.ms.builder.LocalBuilder(
        max_workers=available_cores() if jobs is None else jobs,
        timeout_sec=_DEADLINE_S,
        f_build=compat.build_for_runner,
    )
