"""The weights that ship with the package, and how such weights are made."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from tests.integrations.test_spaces import sample
from tunerplugin.integrations.metaschedule.corpus import training_corpus
from tunerplugin.integrations.metaschedule.pretrained import load_predictor
from tunerplugin.integrations.metaschedule.task import TuningTask
from tunerplugin.outcome import Outcome, Status
from tunerplugin.predictor import Predictor
from tunerplugin.records import MemoryStore, Record, TaskKey

Tasks = Callable[[str, str], TuningTask]


def test_packaged_weights_fit_this_version() -> None:
    predictor = load_predictor(None, seed=0)
    assert "measurements" in predictor.info.training_data
    assert predictor.info.licence == "Apache-2.0"


def test_packaged_weights_prefer_what_every_cpu_prefers(task: Tasks) -> None:
    """Rows of whole vectors, innermost and contiguous: the surest thing that there is to learn."""
    tuning = task("dense", "llvm")
    predictor = load_predictor(None, seed=0)
    candidates = sample(tuning, 200, seed=4)
    scores = predictor.rank(tuning.problem, tuning.space, candidates)
    whole = []
    for values in candidates:
        words = dict(tuning.space.describe(values))
        whole.append(int(words.get("lanes.write.whole", 1)))
    order = np.argsort(-scores)
    first, last = (np.mean([whole[i] for i in part]) for part in (order[:50], order[-50:]))
    assert first > last + 1


def test_own_weights_come_first(tmp_path: Path) -> None:
    Predictor(seed=5).save(tmp_path / "mine.safetensors")
    assert load_predictor(tmp_path / "mine.safetensors", seed=0).info.training_data == "none"


def test_corpus_leaves_out_what_does_not_apply(task: Tasks) -> None:
    tuning = task("dense", "llvm")
    store = MemoryStore()
    store.put_workload(tuning.workload)
    key = tuning.key("some CPU")
    drawn = sample(tuning, 4)
    for i, values in enumerate(drawn):
        store.append(Record(key, values, Outcome.from_samples([0.1 + i]), "ours", 0, i, float(i)))
    failed = Outcome(Status.TIMEOUT, (), "too slow")
    outside = (*drawn[0][:-1], 7)
    store.append(Record(key, outside, failed, "ours", 0, 4, 4.0))
    foreign = TaskKey(key.workload, key.target, key.device, "tvm-0.1", key.space)
    store.append(Record(foreign, drawn[0], failed, "ours", 0, 0, 5.0))
    corpus = training_corpus(store)
    (history,) = corpus.histories.values()
    assert list(history.outcomes) == drawn
    assert [e.quality for e in history.examples()][0] == 1.0
    assert corpus.left_out == {
        "outside the design space": 1,
        "of another TVM version, target or design space": 1,
    }
