"""Reading the three formats, whole and damaged."""

from __future__ import annotations

import bz2
import gzip
import lzma
import sqlite3
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tunerplugin.errors import InputError
from tunerplugin.sources.miopen import PerfRecord, format_key, parse_key, read_records

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT.parent / "shared" / "data" / "miopen"

FORWARD = "256-56-56-1x1-256-56-56-48-0x0-1x1-1x1-0-NCHW-FP32-F"
BACKWARD = "64-28-28-3x3-32-55-55-4-1x1-2x2-1x1-0-NCHW-FP16-B"
TUPLE_1X1U = (1, 32, 2, 64, 1, 1, 1, 2)
TUPLE_DIRECT = (8, 16, 16, 32, 2, 2, 8, 2, 1)

TEXT = f"""\
{FORWARD}=ConvAsm1x1U:1,32,2,64,1,1,1,2;ConvBinWinogradRxSf2x3:7;ConvAsm1x1U:1,2

{BACKWARD}=ConvOclDirectFwd:8,16,16,32,2,2,8,2,1;noise
3-16-56-56-3x3x3-64-16-56-56-4-1x1x1-1x1x1-1x1x1-0-NCDHW-FP32-F=ConvAsm3x3U:0,1,1
not a line
{FORWARD}x=ConvAsm1x1U:1,32,2,64,1,1,1,2
{FORWARD}=ConvAsm3x3U:a,b,c
"""
SKIPPED = {
    "unknown solver": 1,
    "wrong arity": 1,
    "malformed item": 1,
    "3-D problem": 1,
    "malformed line": 1,
    "malformed problem": 1,
    "malformed values": 1,
}


def records(source: str, device: str = "gfx906_60") -> list[PerfRecord]:
    return [
        PerfRecord(device, parse_key(FORWARD), "ConvAsm1x1U", TUPLE_1X1U, source),
        PerfRecord(device, parse_key(BACKWARD), "ConvOclDirectFwd", TUPLE_DIRECT, source),
    ]


COLUMNS = "set solver dir dtype layout C H W y x K Ho Wo N ph pw sh sw dh dw g params valid"
TABLE = "\n".join(
    line.replace(" ", "\t")
    for line in (
        COLUMNS,
        "gfx906_60_2019 ConvAsm1x1U F FP32 NCHW 256 56 56 1 1 256 56 56 48 0 0 1 1 1 1 1 "
        "1,32,2,64,1,1,1,2 ok",
        "gfx906_60_2019 ConvOclDirectFwd B FP16 NCHW 64 28 28 3 3 32 55 55 4 1 1 2 2 1 1 1 "
        "8,16,16,32,2,2,8,2,1 ok",
        "gfx906_60_2019 ConvNone B FP16 NCHW 64 28 28 3 3 32 55 55 4 1 1 2 2 1 1 1 8,1 ok",
        "gfx906_60_2019 ConvAsm3x3U B FP16 NCHW 64 28 28 3 3 32 55 55 4 1 1 2 2 1 1 1 8,1 ok",
        "gfx906_60_2019 ConvAsm3x3U B FP32 NCHW 64 -5 28 3 3 32 55 55 4 1 1 2 2 1 1 1 8,1,1 ok",
        "volta ConvAsm3x3U B FP32 NCHW 64 28 28 3 3 32 28 28 4 1 1 1 1 1 1 1 8,1,1 ok",
        "half a line",
    )
)

CONFIG = (
    "layout data_type direction spatial_dim in_channels in_h in_w in_d fil_h fil_w fil_d "
    "out_channels batchsize pad_h pad_w pad_d conv_stride_h conv_stride_w conv_stride_d "
    "dilation_h dilation_w dilation_d bias group_count"
).split()


def make_sqlite(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(f"CREATE TABLE config (id INTEGER PRIMARY KEY, {', '.join(CONFIG)})")
        db.execute("CREATE TABLE perf_db (id INTEGER PRIMARY KEY, solver, config, params)")
        rows: list[tuple[object, ...]] = [
            ("NCHW", "FP32", "F", 2, 256, 56, 56, 1, 1, 1, 1, 256, 48, *(0, 0, 0), *(1,) * 6, 0, 1),
            (
                "NCHW",
                "FP16",
                "B",
                2,
                64,
                28,
                28,
                1,
                3,
                3,
                1,
                32,
                4,
                1,
                1,
                0,
                2,
                2,
                0,
                1,
                1,
                0,
                0,
                1,
            ),
            ("NCDHW", "FP32", "F", 3, 4, 8, 8, 8, 3, 3, 3, 4, 1, *(1,) * 9, 0, 1),
            ("NCHW", "FP32", "F", 2, None, 8, 8, 8, 3, 3, 3, 4, 1, *(1,) * 9, 0, 1),
        ]
        marks = ",".join("?" * len(CONFIG))
        db.executemany(f"INSERT INTO config ({','.join(CONFIG)}) VALUES ({marks})", rows)
        db.executemany(
            "INSERT INTO perf_db (solver, config, params) VALUES (?,?,?)",
            [
                ("ConvAsm1x1U", 1, "1,32,2,64,1,1,1,2"),
                ("ConvOclDirectFwd", 2, "8,16,16,32,2,2,8,2,1"),
                ("ConvAsm3x3U", 3, "1,1,1"),
                ("ConvAsm3x3U", 4, "1,1,1"),
                ("ConvBinWinogradRxSf2x3", 1, "7"),
                ("ConvAsm3x3U", 1, None),
                ("ConvAsm3x3U", 1, "1,1"),
            ],
        )


def read(path: Path, device: str | None = None) -> tuple[list[PerfRecord], dict[str, int]]:
    skipped: Counter[str] = Counter()
    return list(read_records(path, skipped, device)), dict(skipped)


def test_text(tmp_path: Path) -> None:
    path = tmp_path / "gfx906_60.cd.pdb.txt"
    path.write_text(TEXT)
    assert read(path) == (records("gfx906_60"), SKIPPED)
    assert list(read_records(path)) == records("gfx906_60")


@pytest.mark.parametrize("opener", [lzma.open, bz2.open, gzip.open])
def test_compressed_text(tmp_path: Path, opener: Callable[..., object]) -> None:
    path = tmp_path / "gfx906_60.cd.pdb.txt.packed"
    with opener(path, "wt") as file:  # type: ignore[attr-defined]
        file.write(TEXT)
    assert read(path) == (records("gfx906_60"), SKIPPED)


def test_table(tmp_path: Path) -> None:
    path = tmp_path / "perf.tsv"
    path.write_text(TABLE)
    found, skipped = read(path)
    assert found == records("gfx906_60_2019")
    assert skipped == {
        "unknown solver": 1,
        "wrong arity": 1,
        "malformed problem": 1,
        "unknown device": 1,
        "malformed line": 1,
    }


@pytest.mark.parametrize("packed", [False, True])
def test_sqlite(tmp_path: Path, packed: bool) -> None:
    """Output sizes are computed: 28 dy pixels of stride 2 came from 55 (or 56)."""
    path = tmp_path / "gfx90a68.db"
    make_sqlite(path)
    if packed:
        data = lzma.compress(path.read_bytes())
        path = tmp_path / "gfx90a68.db.xz"
        path.write_bytes(data)
    found, skipped = read(path)
    assert found == records("gfx90a68", "gfx90a_104")
    assert skipped == {
        "3-D problem": 1,
        "malformed problem": 1,
        "unknown solver": 1,
        "malformed values": 1,
        "wrong arity": 1,
    }


def test_the_device_may_be_named(tmp_path: Path) -> None:
    path = tmp_path / "mine.txt"
    path.write_text(TEXT)
    assert [r.device for r in read_records(path, device="gfx900_56")] == ["gfx900_56"] * 2
    with pytest.raises(InputError, match="named after its device"):
        next(read_records(path))


@pytest.mark.parametrize("name", ["missing.txt", ""])
def test_unreadable_files_are_one_sentence(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match="readable MIOpen database"):
        next(read_records(tmp_path / name))


def test_other_sqlite_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "gfx90a68.db"
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("CREATE TABLE other (id)")
    with pytest.raises(InputError, match="no such table"):
        next(read_records(path))


def test_a_torn_archive_gives_what_it_holds_then_says_so(tmp_path: Path) -> None:
    path = tmp_path / "gfx906_60.cd.pdb.txt.xz"
    path.write_bytes(lzma.compress(TEXT.encode() * 2000)[:-40])
    with pytest.raises(InputError, match="fetch or unpack it again"):
        list(read_records(path))


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_damage_is_counted_or_refused(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """No byte changed anywhere ends in anything but fewer records or an ``InputError``."""
    kind = data.draw(st.sampled_from(["text", "table", "sqlite", "xz"]))
    folder = tmp_path_factory.mktemp("damaged")
    path = folder / "gfx906_60.db"
    if kind == "sqlite":
        make_sqlite(path)
    else:
        text = (TABLE if kind == "table" else TEXT).encode()
        path.write_bytes(lzma.compress(text) if kind == "xz" else text)
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(content) - 1))
        content[place] = data.draw(st.integers(0, 255))
    path.write_bytes(content[: data.draw(st.integers(1, len(content)))])
    try:
        found = list(read_records(path))
    except InputError:
        return
    assert all(isinstance(value, int) for record in found for value in record.values)


@pytest.mark.skipif(not DATA.is_dir(), reason="the measurements of ../shared/data are not here")
def test_real_databases() -> None:
    """Every key of a real text database survives the round trip."""
    path = DATA / "gfx900_64.cd.pdb.txt.xz"
    with lzma.open(path, "rt") as file:
        keys = [line.partition("=")[0] for line in file]
    assert keys
    assert [format_key(parse_key(key)) for key in keys] == keys
    found, skipped = read(path)
    assert len(found) == 950
    assert skipped == {"wrong arity": 848}
    sqlite, left_out = read(DATA / "gfx90a68.db.xz")
    assert {record.device for record in sqlite} == {"gfx90a_104"}
    assert (len(sqlite), left_out) == (2023, {"unknown solver": 3918})
