"""User databases: merged, whole, and read back."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunerplugin.errors import InputError, RecordError
from tunerplugin.sources.miopen import SOLVERS, parse_key, read_records, write_user_db

FIRST = parse_key("256-56-56-1x1-256-56-56-48-0x0-1x1-1x1-0-NCHW-FP32-F")
SECOND = parse_key("64-28-28-3x3-32-55-55-4-1x1-2x2-1x1-0-NCHW-FP16-B")
TUPLE = (1, 32, 2, 64, 1, 1, 1, 2)
OTHER = (8, 16, 16, 32, 2, 2, 8, 2, 1)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "gfx906_60.HIP.udb.txt"


def test_a_new_database_reads_back(path: Path) -> None:
    entries = [
        (FIRST, "ConvAsm1x1U", TUPLE),
        (SECOND, "ConvOclDirectFwd", OTHER),
        (FIRST, "ConvOclDirectFwd1x1", OTHER),
    ]
    assert write_user_db(path, entries) == 3
    assert path.read_text() == (
        f"{FIRST}=ConvAsm1x1U:1,32,2,64,1,1,1,2;ConvOclDirectFwd1x1:8,16,16,32,2,2,8,2,1\n"
        f"{SECOND}=ConvOclDirectFwd:8,16,16,32,2,2,8,2,1\n"
    )
    skipped: Counter[str] = Counter()
    found = [(r.problem, r.solver, r.values) for r in read_records(path, skipped)]
    assert sorted(found, key=repr) == sorted(entries, key=repr)
    assert not skipped
    assert write_user_db(path, entries) == 0


def test_other_entries_stay(path: Path) -> None:
    """Other solvers, other problems, 3-D keys and lines that nobody understands."""
    strange = "3-16-56-56-3x3x3-64-16-56-56-4-1x1x1-1x1x1-1x1x1-0-NCDHW-FP32-F=ConvX:1,2;ConvY:"
    path.write_text(
        f"{strange}\n{FIRST}=ConvBinWinogradRxSf2x3:7;ConvAsm1x1U:4,8,1,16,1,1,1,1\nwhat is this\n"
    )
    assert write_user_db(path, [(FIRST, "ConvAsm1x1U", TUPLE)]) == 1
    assert path.read_text() == (
        f"{strange}\n{FIRST}=ConvBinWinogradRxSf2x3:7;ConvAsm1x1U:1,32,2,64,1,1,1,2\nwhat is this\n"
    )


def test_the_last_of_equal_entries_wins(path: Path) -> None:
    entries = [(FIRST, "ConvAsm1x1U", (4, 8, 1, 16, 1, 1, 1, 1)), (FIRST, "ConvAsm1x1U", TUPLE)]
    assert write_user_db(path, entries) == 1
    assert [r.values for r in read_records(path)] == [TUPLE]


@pytest.mark.parametrize(
    ("solver", "values", "said"),
    [("ConvAsm1x1U", (1, 2, 3), "expected 8 values"), ("ConvNone", (1,), "solver among")],
)
def test_wrong_entries_change_nothing(
    path: Path, solver: str, values: tuple[int, ...], said: str
) -> None:
    path.write_text("old\n")
    with pytest.raises(InputError, match=said):
        write_user_db(path, [(FIRST, "ConvAsm1x1U", TUPLE), (FIRST, solver, values)])
    assert path.read_text() == "old\n"


@pytest.mark.parametrize("content", [b"SQLite format 3\x00", "Größe=1\n".encode()])
def test_a_file_of_another_kind_is_left_alone(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(InputError, match="expected a text database"):
        write_user_db(path, [(FIRST, "ConvAsm1x1U", TUPLE)])
    assert path.read_bytes() == content


def test_a_missing_folder_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="cannot write"):
        write_user_db(tmp_path / "none" / "gfx906_60.udb.txt", [(FIRST, "ConvAsm1x1U", TUPLE)])


ENTRIES = st.lists(
    st.tuples(
        st.sampled_from([FIRST, SECOND]),
        st.sampled_from(["ConvAsm1x1U", "ConvAsm3x3U", "ConvOclDirectFwd"]),
        st.integers(0, 99),
    ),
    max_size=6,
)


@given(batches=st.lists(ENTRIES, max_size=4))
def test_batches_add_up(
    tmp_path_factory: pytest.TempPathFactory, batches: list[list[tuple[object, str, int]]]
) -> None:
    """Whatever the order, the file holds the last tuple of each problem and solver."""
    path = tmp_path_factory.mktemp("db") / "gfx906_60.udb.txt"
    expected: dict[tuple[object, str], tuple[int, ...]] = {}
    for batch in batches:
        entries = [(p, s, (v,) * len(SOLVERS[s].fields)) for p, s, v in batch]
        expected.update({(p, s): values for p, s, values in entries})
        write_user_db(path, entries)  # type: ignore[arg-type]
    found = {(r.problem, r.solver): r.values for r in read_records(path)} if batches else {}
    assert found == expected
