"""MetaSchedule databases of older TVMs, imported without one.

``data/metaschedule_016`` was made by TVM 0.16 (``ms.tune_tir``, random cost model, 16 trials) of
the two functions that ``todays`` writes for today's TVM.
"""

from __future__ import annotations

import base64
import json
import lzma
import math
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import te, topi

from tunerplugin.cli import main
from tunerplugin.errors import InputError, RecordError
from tunerplugin.integrations.compat import normalize_mod, plain
from tunerplugin.integrations.metaschedule.corpus import recorded_task, training_corpus
from tunerplugin.integrations.metaschedule.old_database import import_database, read_line
from tunerplugin.integrations.metaschedule.old_workload import rebuild_workload, written_by
from tunerplugin.integrations.metaschedule.task import TuningTask
from tunerplugin.outcome import Status
from tunerplugin.records import IMPORTED, MemoryStore, Record, SQLiteStore

DATABASE = Path(__file__).parent / "data" / "metaschedule_016"
SHARED = Path(__file__).resolve().parents[3] / "shared" / "data" / "metaschedule_records"
needs_shared = pytest.mark.skipif(
    not SHARED.is_dir(), reason="the MetaSchedule databases of ../shared/data are not here"
)


def lines(name: str) -> list[str]:
    return lzma.decompress((DATABASE / f"{name}.json.xz").read_bytes()).decode().splitlines()


RECORDS, WORKLOADS = lines("database_tuning_record"), lines("database_workload")
PACKED = (
    "it was measured with weights packed beforehand (RewriteLayout), which no compiled module "
    "has today"
)
#: the softmax's but for one, whose place of computation is none today
SOFTMAX = RECORDS[9:]
GOOD = SOFTMAX[0]
OTHER_SPACE = (
    "its schedule lies outside of today's design space (hand-written, mutated, or of other rules)"
)


def write(folder: Path, records: list[str], workloads: list[str] = WORKLOADS) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "database_tuning_record.json").write_text("\n".join(records) + "\n")
    (folder / "database_workload.json").write_text("\n".join(workloads) + "\n")
    return folder


@cache
def imported() -> tuple[MemoryStore, dict[str, int]]:
    """The whole fixture in a store, and what was left out.  Nobody may change the store."""
    store = MemoryStore()
    report = import_database(DATABASE, store, device="old machine")
    assert (report.added, report.failed) == (store.count(), 0)
    return store, dict(report.left_out)


def tasks() -> dict[str, TuningTask]:
    store, _ = imported()
    workloads = {workload.key: workload for workload in store.workloads()}
    found = [recorded_task(key, workloads[key.workload], True) for key in store.tasks()]
    return {task.name: task for task in found if task is not None}


def records_of(name: str) -> list[Record]:
    store, _ = imported()
    (workload,) = (w.key for w in store.workloads() if w.name == name)
    return [record for record in store.records() if record.key.workload == workload]


def dense_relu() -> Any:
    x, w = te.placeholder((64, 32), name="x"), te.placeholder((32, 48), name="w")
    return te.create_prim_func([x, w, topi.nn.relu(topi.nn.matmul(x, w))])


def softmax() -> Any:
    x = te.placeholder((32, 64), name="x")
    return te.create_prim_func([x, topi.nn.softmax(x)])


def encoded(index: int) -> str:
    text = json.loads(WORKLOADS[index])[1]
    assert isinstance(text, str)
    return text


def test_workloads_are_what_todays_tvm_would_make() -> None:
    for index, function in ((0, dense_relu()), (1, softmax())):
        assert written_by(encoded(index)) == "0.16.dev0"
        tvm.ir.assert_structural_equal(rebuild_workload(encoded(index)), normalize_mod(function))


def test_a_rebuilt_workload_runs() -> None:
    compiled = tvm.compile(rebuild_workload(encoded(1)), target="llvm")
    x = np.random.default_rng(0).standard_normal((32, 64)).astype("float32")
    out = tvm.runtime.tensor(np.zeros((32, 64), "float32"))
    compiled(tvm.runtime.tensor(x), out)
    e = np.exp(x - x.max(axis=1, keepdims=True))
    np.testing.assert_allclose(out.numpy(), e / e.sum(axis=1, keepdims=True), rtol=1e-5)


def test_records_mean_the_schedules_that_were_measured() -> None:
    found, rows = records_of("T_softmax_maxelem"), [json.loads(line) for line in SOFTMAX]
    assert len(found) == 7
    task = tasks()["T_softmax_maxelem"]
    for record, (_, (trace, seconds, *_)) in zip(found, rows, strict=True):
        assert record.outcome.samples_s == tuple(seconds)
        schedule = task.schedule(record.values).schedule
        sampled = [plain(d) for d in schedule.trace.decisions.values()]
        tiles = [tuple(d) for d in sampled if isinstance(d, tuple)]
        assert sorted(tiles) == sorted(tuple(d) for _, d in trace[1] if isinstance(d, list))
        assert (record.key.compiler, record.key.device) == ("tvm-0.16.dev0", "old machine")
        assert record.key.space == task.space.version


def test_what_is_left_out_has_a_reason() -> None:
    store, left_out = imported()
    assert store.count(method=IMPORTED) == 7
    assert left_out == {
        PACKED: 8,
        "today's limits of its target refuse the candidate (domain)": 1,
    }


def test_they_teach_the_predictor() -> None:
    store, _ = imported()
    corpus = training_corpus(store)
    assert not corpus.left_out
    (key,) = {record.key for record in records_of("T_softmax_maxelem")}
    qualities = [example.quality for example in corpus.histories[key].examples()]
    seconds = [json.loads(line)[1][1][0] for line in SOFTMAX]
    assert qualities == pytest.approx([min(seconds) / s for s in seconds])


def put(*keys: Any, to: object) -> Callable[[Any], object]:
    def change(row: Any) -> None:
        for key in keys[:-1]:
            row = row[key]
        row[keys[-1]] = to

    return change


def changed(line: str, change: Callable[[Any], object]) -> str:
    row = json.loads(line)
    change(row)
    return json.dumps(row)


DAMAGED = "the line is damaged: no record of the format"
FAULTS: list[tuple[str, str]] = [
    (GOOD[:-40], DAMAGED),
    ("", DAMAGED),
    ("{}", DAMAGED),
    ("[" * 100_000, DAMAGED),
    (changed(GOOD, put(1, 0, 1, 0, 0, to=10**6)), DAMAGED),
    (changed(GOOD, put(1, 0, 0, 0, to=["GetBlock"])), DAMAGED),
    (changed(GOOD, put(1, 1, to=["fast"])), DAMAGED),
    (changed(GOOD, put(1, 1, to=[])), "no run time was recorded"),
    (changed(GOOD, put(0, to=9)), "its workload is not in the file of workloads"),
    (
        changed(GOOD, put(0, to=0)),
        "its arguments are not those of its workload (two runs wrote to one database)",
    ),
    (
        changed(GOOD, put(1, 2, "kind", to="warp9")),
        "today's TVM does not take its target (warp9)",
    ),
    (
        changed(GOOD, put(1, 0, 0, 0, 2, to=["another", "main"])),
        "its trace does not apply to its workload",
    ),
    (
        changed(GOOD, put(1, 0, 0, 0, 0, to="FoldSpace")),
        "its trace does not apply to its workload",
    ),
    (
        GOOD.replace('32],["meta_schedule.parallel"]', '7],["meta_schedule.parallel"]'),
        OTHER_SPACE,
    ),
]


def test_a_bad_line_costs_that_line_only(tmp_path: Path) -> None:
    failed = changed(GOOD, put(1, 1, to=[1e10]))
    odd = [changed(SOFTMAX[i], put(1, 1, to=[s])) for i, s in ((1, math.nan), (2, 0.0), (3, -1.0))]
    path = write(tmp_path / "old", [*(line for line, _ in FAULTS), failed, *odd, SOFTMAX[4]])
    store = MemoryStore()
    report = import_database(path, store)
    expected: dict[str, int] = {}
    for _, reason in FAULTS:
        expected[reason] = expected.get(reason, 0) + 1
    assert dict(report.left_out) == expected
    statuses = [record.outcome.status for record in store.records()]
    assert statuses == [Status.RUN_ERROR, *[Status.NON_FINITE] * 3, Status.OK]
    assert (report.added, report.failed) == (5, 4)
    again = import_database(path, store)
    assert (again.added, again.present) == (0, 5)


def graph_without(kind: str, to: str) -> str:
    text = base64.b64decode(encoded(0)).replace(f'"{kind}"'.encode(), f'"{to}"'.encode())
    return base64.b64encode(text).decode()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("???", "no JSON graph"),
        (encoded(0)[: len(encoded(0)) // 8 * 4], "no JSON graph"),
        (base64.b64encode(b"12345678[]").decode(), "no JSON graph"),
        (base64.b64encode(b'12345678{"root": 1, "nodes": [{}, {}]}').decode(), "do not fit"),
        (graph_without("tir.BufferStore", "tir.Prefetch"), "uses tir.Prefetch"),
        (graph_without("tir.Max", "tir.Gone"), "uses tir.Gone"),
        (graph_without("tir.IterVar", "Range"), "do not fit together"),
    ],
)
def test_a_bad_workload_says_what_is_wrong(text: str, reason: str) -> None:
    with pytest.raises(RecordError, match=reason):
        rebuild_workload(text)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(0, 300), st.sampled_from(["data", "attrs", "type_key"]))
def test_graphs_of_nonsense_are_refused_or_rebuilt(node: int, to: int, where: str) -> None:
    """A graph with one reference turned elsewhere: cycles among them."""
    raw = base64.b64decode(encoded(0))
    graph = json.loads(raw[8:])
    chosen = graph["nodes"][node % len(graph["nodes"])]
    if where == "data" and chosen.get("data"):
        chosen["data"][0] = to
    elif where == "attrs" and chosen.get("attrs"):
        chosen["attrs"][sorted(chosen["attrs"])[to % len(chosen["attrs"])]] = str(to)
    else:
        chosen["type_key"] = graph["nodes"][to % len(graph["nodes"])]["type_key"]
    try:
        rebuild_workload(base64.b64encode(raw[:8] + json.dumps(graph).encode()).decode())
    except RecordError as error:
        assert str(error).startswith("its workload")


@given(st.integers(0, 4000), st.binary(max_size=3))
def test_any_damage_of_a_line_is_a_sentence(place: int, bytes_: bytes) -> None:
    line = GOOD.encode()
    try:
        read_line(line[:place] + bytes_ + line[place + len(bytes_) :])
    except RecordError as error:
        assert str(error) == DAMAGED


def test_folders_that_are_no_database(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"got no database_tuning_record\.json"):
        import_database(tmp_path, MemoryStore())


def test_the_verbs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    work, old = str(tmp_path / "work"), write(tmp_path / "old", [*SOFTMAX[:3], SOFTMAX[3][:99]])
    assert main(["records", "import", work, str(old), "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["kind"], document["added"]) == ("metaschedule", 3)
    assert document["left_out"] == {DAMAGED: 1}
    assert main(["records", "check", work]) == 0
    assert main(["records", "list", work]) == 0
    assert "T_softmax_maxelem" in capsys.readouterr().out
    for kind in ("jsonl", "t4", "metaschedule"):
        assert main(["records", "export", work, "--to", kind, str(tmp_path / kind)]) == 0
    configuration = json.loads((tmp_path / "t4").read_text())["results"][0]["configuration"]
    assert {"sketch", *configuration} == set(configuration)
    from tunerplugin.integrations.compat import ms

    database = ms.database.JSONDatabase(work_dir=str(tmp_path / "metaschedule"))
    target = tvm.target.Target(json.loads(GOOD)[1][2])
    best = database.query_tuning_record(normalize_mod(softmax()), target, "main")
    seconds = [json.loads(line)[1][1][0] for line in SOFTMAX[:3]]
    assert [float(s) for s in best.run_secs] == [min(seconds)]


@needs_shared
def test_public_databases() -> None:
    store = MemoryStore()
    report = import_database(SHARED / "vicuna-v1-7b.database_tuning_record.json.xz", store)
    assert report.added == 14
    assert report.left_out == {
        OTHER_SPACE: 5,
        "today's limits of its target refuse the candidate (unroll)": 4,
    }
    assert {json.loads(key.target)["kind"] for key in store.tasks()} <= {"metal", "opencl"}
    lost = sorted(SHARED.glob("web-stable-diffusion*"))[0]
    report = import_database(lost, store)
    missing = "no database_workload.json lies beside the records: their workloads are lost"
    assert (report.added, report.left_out) == (0, {missing: 292})


@pytest.mark.heavy
def test_tune_starts_from_them(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The fastest imported candidate is measured first, and imported times decide nothing."""
    import tunerplugin

    target = tvm.target.Target(json.loads(GOOD)[1][2])
    with SQLiteStore(tmp_path / "records.sqlite") as store:
        import_database(write(tmp_path / "old", SOFTMAX), store)
        seeds = sorted(store.records(method=IMPORTED), key=lambda r: r.outcome.latency_s or 0.0)
    with caplog.at_level("INFO", "tunerplugin"):
        tunerplugin.tune(softmax(), target, work_dir=tmp_path, trials=3, jobs=1)
    assert "starts from 7 imported records" in caplog.text
    assert "alone" not in caplog.text  # they are not left alone
    with SQLiteStore(tmp_path / "records.sqlite", read_only=True) as store:
        measured = list(store.records(method="ours"))
        assert [r.values for r in measured] == [r.values for r in seeds[:3]]
        assert all(r.key.compiler != seeds[0].key.compiler for r in measured)
        assert store.count(method=IMPORTED) == 7
