"""Tuning a fused MLP for real: measured in workers, resumed, used by the pass."""

from __future__ import annotations

from pathlib import Path

import pytest
import tvm

from tunerplugin.errors import ScheduleError
from tunerplugin.integrations import fused_mlp
from tunerplugin.integrations.fused_mlp import tune_fused_mlp
from tunerplugin.measure import host_target
from tunerplugin.records import STORE_NAME, SQLiteStore
from tunerplugin.schedules import FuseMLP
from tunerplugin.schedules.fused_mlp import MLP

pytestmark = pytest.mark.heavy
SMALL = MLP.of((16, 32, 16), "relu")
BATCH = 256


@pytest.mark.timeout(300)
def test_tunes_resumes_and_is_never_slower_than_the_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = tune_fused_mlp(SMALL, BATCH, trials=3, work_dir=tmp_path, seed=1)
    assert len(first.outcomes) == 3 and all(outcome.ok for outcome in first.outcomes.values())
    assert first.best_s <= first.default_s
    assert set(first.knobs) >= {"block_rows", "rows", "unroll"}
    with_methods = [r.method for r in SQLiteStore(tmp_path / STORE_NAME, read_only=True).records()]
    assert with_methods == ["untuned", "ours", "ours"]
    # all three are on record: the same call measures nothing, and a larger total only the rest
    measured: list[object] = []
    original = fused_mlp._Session._one

    def counted(self: fused_mlp._Session, values: tuple[int, ...]) -> object:
        measured.append(values)
        return original(self, values)

    monkeypatch.setattr(fused_mlp._Session, "_one", counted)
    again = tune_fused_mlp(SMALL, BATCH, trials=3, work_dir=tmp_path, seed=1)
    assert measured == [] and again == first
    more = tune_fused_mlp(SMALL, BATCH, trials=4, work_dir=tmp_path, seed=1)
    assert len(measured) == 1 and len(more.outcomes) == 4 and more.best_s <= first.best_s


def test_the_pass_takes_the_knobs() -> None:
    from tvm.relax.frontend import nn

    class Net(nn.Module):
        def __init__(self) -> None:
            self.up, self.down = nn.Linear(16, 32), nn.Linear(32, 16)

        def forward(self, x: nn.Tensor) -> nn.Tensor:
            return self.down(nn.op.relu(self.up(x)))

    spec = {"forward": {"x": nn.spec.Tensor((BATCH, 16), "float32")}}
    mod, _ = Net().export_tvm(spec)
    target = tvm.target.Target(host_target())

    def packed(knobs: dict[str, int]) -> str:
        fuse = FuseMLP(target, always=True, knobs={SMALL: knobs})
        fused = fuse(mod)
        assert [line.fused for line in fuse.report] == [True]
        return str(fused)

    assert packed({"rows": 32, "block_rows": 4}) != packed({"rows": 64, "block_rows": 4})


@pytest.mark.timeout(300)
def test_knobs_for_a_device_that_is_not_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """The compiler is asked: the default that it builds without spills is taken as it is, and where
    it is refused, the next candidate that is not."""
    mlp = MLP.uniform(32, 2, dtype="float16")
    target = {"kind": "rocm", "mcpu": "gfx942"}
    default = fused_mlp.sound_knobs(mlp, target)
    assert default["waves"] and default["row_tiles"]
    asked: list[object] = []
    real = fused_mlp.refusal

    def refuses_the_first(kernel: object, where: object) -> str | None:
        asked.append(kernel)
        return "made to spill" if len(asked) == 1 else real(kernel, where)  # type: ignore[arg-type]

    monkeypatch.setattr(fused_mlp, "refusal", refuses_the_first)
    other = fused_mlp.sound_knobs(mlp, target)
    assert len(asked) >= 2 and other.keys() == default.keys()
    monkeypatch.setattr(fused_mlp, "refusal", lambda kernel, where: "made to spill")
    with pytest.raises(ScheduleError, match="got 2 refusals, the last: made to spill"):
        fused_mlp.sound_knobs(mlp, target, tries=2)


def test_a_target_without_template_is_refused() -> None:
    with pytest.raises(ScheduleError, match="can be fused on cuda: no template"):
        tune_fused_mlp(SMALL, BATCH, {"kind": "cuda", "arch": "sm_80"})
    with pytest.raises(ScheduleError, match="a batch of at least 1 to measure, got None"):
        tune_fused_mlp(SMALL, None)  # type: ignore[arg-type]
