"""AutoTVM's measurement results as our outcomes, and the way back."""

from __future__ import annotations

import time
from typing import Any

from tvm.autotvm.measure import MeasureErrorNo, MeasureResult

from ...outcome import Outcome, Status

_REASON_CHARS = 200

_STATUS_OF = {
    MeasureErrorNo.INSTANTIATION_ERROR: Status.ILLEGAL,
    MeasureErrorNo.COMPILE_HOST: Status.COMPILE_ERROR,
    MeasureErrorNo.COMPILE_DEVICE: Status.COMPILE_ERROR,
    MeasureErrorNo.RUNTIME_DEVICE: Status.RUN_ERROR,
    MeasureErrorNo.WRONG_ANSWER: Status.WRONG_RESULT,
    MeasureErrorNo.BUILD_TIMEOUT: Status.TIMEOUT,
    MeasureErrorNo.RUN_TIMEOUT: Status.TIMEOUT,
    MeasureErrorNo.UNKNOWN_ERROR: Status.RUN_ERROR,
}
_ERROR_OF = {
    Status.ILLEGAL: MeasureErrorNo.INSTANTIATION_ERROR,
    Status.COMPILE_ERROR: MeasureErrorNo.COMPILE_HOST,
    Status.COMPILE_CRASH: MeasureErrorNo.COMPILE_HOST,
    Status.RUN_ERROR: MeasureErrorNo.RUNTIME_DEVICE,
    Status.TIMEOUT: MeasureErrorNo.RUN_TIMEOUT,
    Status.WRONG_RESULT: MeasureErrorNo.WRONG_ANSWER,
    Status.NON_FINITE: MeasureErrorNo.RUNTIME_DEVICE,
}


def outcome_of(result: Any) -> Outcome:
    """The outcome of an AutoTVM ``MeasureResult``; an error number of a later version is a failed
    run."""
    wall_s = max(0.0, float(result.all_cost))
    if result.error_no == MeasureErrorNo.NO_ERROR:
        return Outcome.from_samples([float(cost) for cost in result.costs], wall_s)
    status = _STATUS_OF.get(result.error_no, Status.RUN_ERROR)
    return Outcome(status, (), _reason(result.costs), wall_s)


def result_of(outcome: Outcome) -> Any:
    """The AutoTVM ``MeasureResult`` of an outcome.

    As AutoTVM's own runners do, the extremes of three samples and more are left out.
    """
    now = time.time()
    if outcome.ok:
        samples = sorted(outcome.samples_s)
        costs = tuple(samples[1:-1] if len(samples) > 2 else samples)
        return MeasureResult(costs, MeasureErrorNo.NO_ERROR, outcome.wall_s, now)
    error_no = _ERROR_OF[outcome.status]
    if outcome.status is Status.TIMEOUT and outcome.reason.startswith("build"):
        error_no = MeasureErrorNo.BUILD_TIMEOUT
    # what failed and the exception, as AutoTVM's loop wants them
    failure = (f"{outcome.status}: {outcome.reason}", RuntimeError(outcome.reason))
    return MeasureResult(failure, error_no, outcome.wall_s, now)


def _reason(costs: Any) -> str:
    """The last line of the last thing that a failed result tells."""
    lines = str(costs[-1] if len(costs) else "").strip().splitlines()
    return lines[-1].strip()[:_REASON_CHARS] if lines else "no reason given"
