"""A builder and a runner for MetaSchedule that stay in this process.

Real builds, real runs, without the seconds that starting TVM's worker processes takes.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tvm

from tunerplugin.integrations.compat import (
    compile_module,
    derived_object,
    ms,
    tensor,
    without_layout_rewrite,
)

_built: dict[str, Any] = {}


@derived_object
class InProcessBuilder(ms.builder.PyBuilder):
    """Keeps the built modules; the artifact paths only name them.

    TVM deletes the folder of an artifact, so each has one of its own.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder

    def build(self, build_inputs: Sequence[Any]) -> list[Any]:
        results = []
        for item in build_inputs:
            home = self._folder / f"artifact{len(_built)}"
            home.mkdir()
            path = str(home / "module")
            _built[path] = compile_module(without_layout_rewrite(item.mod), item.target)
            results.append(ms.builder.BuilderResult(path, None))
        return results


@derived_object
class _Done(ms.runner.PyRunnerFuture):
    def __init__(self, result: Any) -> None:
        super().__init__()
        self._result = result

    def done(self) -> bool:
        return True

    def result(self) -> Any:
        return self._result


@derived_object
class InProcessRunner(ms.runner.PyRunner):
    """Times what ``InProcessBuilder`` built; every ``fail_every``-th candidate fails."""

    def __init__(self, fail_every: int = 0) -> None:
        super().__init__()
        self._fail_every = fail_every
        self.runs = 0

    def run(self, runner_inputs: Sequence[Any]) -> list[Any]:
        return [self._run(item) for item in runner_inputs]

    def _run(self, item: Any) -> Any:
        self.runs += 1
        if self._fail_every and self.runs % self._fail_every == 0:
            return _Done(ms.runner.RunnerResult(None, "this run is made to fail"))
        generator = np.random.default_rng(0)
        arguments = [
            tensor(generator.random(tuple(int(s) for s in a.shape), dtype="float32"))
            for a in item.args_info
        ]
        timer = _built[str(item.artifact_path)].time_evaluator("main", tvm.cpu(), number=3)
        return _Done(ms.runner.RunnerResult([timer(*arguments).mean], None))
