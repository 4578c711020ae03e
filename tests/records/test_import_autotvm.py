"""AutoTVM logs: a real one of TVM 0.16 goes round; damage is counted, and never raises."""

from __future__ import annotations

import gzip
import json
import lzma
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunerplugin.cli import main
from tunerplugin.errors import InputError, RecordError
from tunerplugin.outcome import Status
from tunerplugin.records import (
    MemoryStore,
    Record,
    SQLiteStore,
    export_autotvm,
    import_autotvm,
    kind_of,
)
from tunerplugin.records.autotvm import knob_names, read_line

LOG = Path(__file__).parent / "data" / "autotvm_016.log"
"""Random candidates of two dense templates and a convolution, as ``log_to_file`` wrote them."""
LINES = LOG.read_text().splitlines()


def imported(path: Path) -> tuple[list[Record], dict[str, int]]:
    store = MemoryStore()
    report = import_autotvm(path, store)
    records = list(store.records())
    assert (report.added, report.present) == (len(records), 0)
    return records, dict(report.left_out)


def changed(line: str, change: Callable[[Any], object]) -> str:
    row = json.loads(line)
    change(row)
    return json.dumps(row)


def test_every_line_is_a_record() -> None:
    records, left_out = imported(LOG)
    rows = [json.loads(line) for line in LINES]
    assert left_out == {}
    assert len(records) == len(rows) == 21
    first = records[0]
    assert first.values == (-1, 4, -1, 96, -1, 4)
    assert knob_names(first) == [
        *("tile_y.0", "tile_y.1", "tile_x.0", "tile_x.1", "tile_k.0", "tile_k.1")
    ]
    assert first.outcome.samples_s == tuple(rows[0]["result"][0])
    assert (first.key.compiler, first.key.device) == ("tvm-0.16.dev0", "unknown")
    failed = [row["result"][1] for row in rows if row["result"][1]]
    assert [r.outcome.status for r in records if not r.outcome.ok] == [
        {4: Status.RUN_ERROR, 7: Status.TIMEOUT, 1: Status.ILLEGAL, 6: Status.TIMEOUT}[e]
        for e in failed
    ]
    by_task = Counter(row["input"][1] for row in rows)
    assert Counter(Counter(r.key for r in records).values()) == Counter(by_task.values())


def test_goes_round_without_loss(tmp_path: Path) -> None:
    with SQLiteStore(tmp_path / "records.sqlite") as store:
        import_autotvm(LOG, store)
        assert import_autotvm(LOG, store).added == 0
        assert export_autotvm(store, tmp_path / "back.log") == len(LINES)
    back = (tmp_path / "back.log").read_text().splitlines()
    assert [json.loads(line) for line in back] == [json.loads(line) for line in LINES]


@pytest.mark.parametrize("pack", [gzip.compress, lzma.compress])
def test_packed_and_cut_short(tmp_path: Path, pack: Callable[[bytes], bytes]) -> None:
    noise = "".join(json.dumps({"n": i * 2654435761 % 2**32}) + "\n" for i in range(4000))
    packed = pack(LOG.read_bytes() + noise.encode())
    path = tmp_path / "log"
    path.write_bytes(packed)
    assert len(imported(path)[0]) == 21
    path.write_bytes(packed[: len(packed) - 40])
    records, left_out = imported(path)
    assert len(records) == 21
    assert left_out["the packed file ends early: what came after is lost"] == 1


def test_format_01_is_read_and_written_as_02(tmp_path: Path) -> None:
    row = json.loads(LINES[0])
    config = row["config"]
    old = {
        "i": [
            *row["input"],
            ["dense"],
            {"i": 247, "t": "direct", "c": None, "e": config["entity"]},
        ],
        "r": row["result"],
        "v": 0.1,
    }
    path = tmp_path / "old.log"
    path.write_text(json.dumps(old) + "\n")
    assert kind_of(path) == "autotvm"
    store = MemoryStore()
    import_autotvm(path, store)
    (record,) = store.records()
    assert record.values == (-1, 4, -1, 96, -1, 4)
    assert record.key.compiler == "tvm-unknown"
    export_autotvm(store, tmp_path / "new.log")
    new = json.loads((tmp_path / "new.log").read_text())
    assert (new["version"], new["config"], new["input"]) == (0.2, config, row["input"])


def put(*keys: Any, to: object) -> Callable[[Any], object]:
    def change(row: Any) -> None:
        for key in keys[:-1]:
            row = row[key]
        row[keys[-1]] = to

    return change


@pytest.mark.parametrize(
    ("change", "status"),
    [
        (put("result", 0, to=[1e10]), Status.RUN_ERROR),
        (put("result", 0, to=[float("nan")]), Status.NON_FINITE),
        (put("result", 0, to=[float("inf")]), Status.NON_FINITE),
        (put("result", 0, to=[-1e-3]), Status.NON_FINITE),
        (put("result", 0, to=[0.0]), Status.NON_FINITE),
        (put("result", 0, to=[10**400]), Status.NON_FINITE),
        (put("result", 1, to=1), Status.ILLEGAL),
        (put("result", 1, to=2), Status.COMPILE_ERROR),
        (put("result", 1, to=5), Status.WRONG_RESULT),
        (put("result", 1, to=6), Status.TIMEOUT),
        (put("result", 1, to=99), Status.RUN_ERROR),
        (put("result", 2, to=1e300), Status.OK),
    ],
)
def test_odd_results_never_become_a_latency(
    tmp_path: Path, change: Callable[[Any], object], status: Status
) -> None:
    path = tmp_path / "log"
    path.write_text(changed(LINES[0], change) + "\n")
    (record,), left_out = imported(path)
    assert (record.outcome.status, left_out) == (status, {})
    assert record.outcome.ok == (status is Status.OK)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (LINES[0][:-9], "the line is damaged: no record of the format"),
        ("{}", "the line is damaged: no record of the format"),
        ("[1, 2]", "the line is damaged: no record of the format"),
        ("[" * 100_000, "the line is damaged: no record of the format"),
        ("9" * 10_000, "the line is damaged: no record of the format"),
        (changed(LINES[0], put("input", 2, to=7)), "the line is damaged: no record of the format"),
        (changed(LINES[0], put("config", "entity", 0, 1, to="xx")), "the line is damaged"),
        (changed(LINES[0], put("config", "entity", to=3)), "the line is damaged"),
        (changed(LINES[0], put("result", to=[[1.0]])), "the line is damaged"),
        (changed(LINES[0], put("result", 1, to="0")), "the line is damaged"),
        (changed(LINES[0], put("result", 0, to=[])), "no run time was recorded"),
        ("llvm\tgAN=\tgAN=\tgAN=\t0.2\t0.16", "the line is pickled, which runs code when read"),
    ],
)
def test_a_bad_line_costs_that_line_only(tmp_path: Path, line: str, reason: str) -> None:
    path = tmp_path / "log"
    path.write_text(f"# a comment\n\n{line}\n{LINES[1]}\n")
    records, left_out = imported(path)
    assert len(records) == 1
    (found,) = left_out
    assert found.startswith(reason)


@given(st.integers(0, 600), st.binary(max_size=4))
def test_any_damage_is_a_sentence(place: int, bytes_: bytes) -> None:
    line = LINES[0].encode()
    mutilated = line[:place] + bytes_ + line[place + len(bytes_) :]
    try:
        _ = read_line(mutilated).outcome
    except RecordError as error:
        assert str(error)


def test_files_that_are_no_log(tmp_path: Path) -> None:
    path = tmp_path / "file"
    for text, message in (
        (b"", "without a line of any of them"),
        (b"\x00\xff" * 300, "without a line of any of them"),
        (b'{"i": [["task"], []], "r": [[1.0], 0, 1.0, 1], "v": "v0.6"}\n', "auto_scheduler"),
    ):
        path.write_bytes(text)
        with pytest.raises(InputError, match=message):
            kind_of(path)
    with pytest.raises(RecordError, match="got none: import one first"):
        export_autotvm(MemoryStore(), tmp_path / "out.log")


def test_the_verbs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    work, damaged = str(tmp_path / "work"), tmp_path / "log"
    damaged.write_text("\n".join([*LINES, LINES[3][:40]]) + "\n")
    argv = ["records", "import", work, str(damaged), "--device", "board 7", "--format", "json"]
    assert main(argv) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["kind"], document["added"], document["present"]) == ("autotvm", 21, 0)
    assert document["left_out"] == {"the line is damaged: no record of the format": 1}
    assert main(argv[:-2]) == 0
    assert "0 records added, 21 were there already" in capsys.readouterr().out
    assert main(["records", "list", work, "--format", "json"]) == 0
    tasks = json.loads(capsys.readouterr().out)["tasks"]
    assert {(t["task"], t["device"]) for t in tasks} == {
        (name, "board 7") for name in ("dense_nopack.x86", "dense_pack.x86", "conv2d_NCHWc.x86")
    }
    assert main(["records", "check", work]) == 0
    for kind in ("autotvm", "jsonl", "t4"):
        assert main(["records", "export", work, "--to", kind, str(tmp_path / kind)]) == 0
    named = json.loads((tmp_path / "t4").read_text())["results"][-1]["configuration"]
    assert named["unroll_kw"] == 0
    capsys.readouterr()
    damaged.write_text(LINES[3][:40] + "\n" + '{"input": 3}\n')
    assert main(["records", "import", str(tmp_path / "none"), str(damaged)]) == 1
    assert "2 left out" in capsys.readouterr().out
    assert main(["records", "import", work, str(tmp_path / "missing")]) == 2
