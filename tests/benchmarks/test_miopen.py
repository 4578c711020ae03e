"""The MIOpen benchmark: splits, scores, methods, and a whole run on records made up here."""

from __future__ import annotations

import importlib.util
import json
import lzma
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import miopen
import miopen_ktn
import miopen_rivals
import miopen_scores
import miopen_splits
import miopen_trees
import numpy as np
import pytest
from harness import wilson
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.sources.miopen_cases import problems
from tunerplugin.sources.miopen import SOLVERS, ConvProblem, PerfRecord, parse_key, space_of
from tunerplugin.space import Prefix

needs_sklearn = pytest.mark.skipif(
    importlib.util.find_spec("sklearn") is None, reason="scikit-learn is not installed"
)
REAL = miopen.DATA / miopen.FILE
needs_records = pytest.mark.skipif(
    not REAL.is_file(), reason="the measurements of ../shared/data are not here"
)
SOLVER = "ConvAsm3x3U"
SOURCES = ("gfx900_56_2019", "gfx906_60_2019", "gfx906_64_2019", "gfx906_60_2023a")
SCORED = "gfx906_60_2019"


def problem(c: int, k: int, size: int, n: int, **others: Any) -> ConvProblem:
    sizes = (c, size, size, 3, 3, k, size, size, n)
    return ConvProblem(*sizes, **{"pad_h": 1, "pad_w": 1, **others})


def record(p: ConvProblem, source: str, values: tuple[int, ...] = (0, 1, 1)) -> PerfRecord:
    return PerfRecord(source[:9], p, SOLVER, values, source)


def best(p: ConvProblem) -> tuple[int, int, int]:
    """A rule that can be learnt: the fields hang on k and the size."""
    return (0, 1 if p.k < 64 else 2, 1 if p.h < 20 else 2)


def made_up(years: Sequence[str] = SOURCES) -> list[PerfRecord]:
    """128 problems on each database, and 32 that are new in 2023."""
    shapes = [(c, k, s, n) for c in (16, 32) for k in (16, 32, 64, 128) for s in (7, 14, 28, 56)
              for n in (1, 4, 16, 64)]  # fmt: skip
    old = [record(p, source, best(p)) for q in shapes for source in years if (p := problem(*q))]
    new = [problem(c, 48, s, n) for c in (16, 32) for s in (7, 14, 28, 56) for n in (1, 4, 16, 64)]
    return old + [record(p, SOURCES[-1], best(p)) for p in new]


# splits


def test_twins_are_one_group() -> None:
    """Forward and backward, batch, data type and exchanged sides change no group."""
    forward = parse_key("64-56-56-1x1-128-28-28-8-0x0-2x2-1x1-0-NCHW-FP32-F")
    backward = parse_key("128-28-28-1x1-64-56-56-32-0x0-2x2-1x1-0-NCHW-FP16-B")
    weights = parse_key("128-28-28-1x1-64-56-56-32-0x0-2x2-1x1-0-NCHW-FP16-W")
    keys = {miopen_splits.group_key(record(p, SCORED)) for p in (forward, backward, weights)}
    assert keys == {(64, 128, 28, 56, 28, 56, 1, 1, 0, 0, 2, 2, 1, 1, 1)}
    exchanged = replace(problem(64, 32, 14, 1), direction="B")
    assert miopen_splits.group_key(record(exchanged, SCORED)) == miopen_splits.group_key(
        record(problem(32, 64, 14, 8), SCORED)
    )
    for other in (problem(32, 64, 15, 8), problem(32, 64, 14, 8, stride_h=2)):
        assert miopen_splits.group_key(record(other, SCORED)) not in keys


@pytest.mark.parametrize(
    ("source", "year"),
    [("gfx906_60_2019", 2019), ("gfx906_60_2023b", 2023), ("gfx803_36", 2019), ("gfx908_120", 0)],
)
def test_years(source: str, year: int) -> None:
    assert miopen_splits.year_of(source) == year


@pytest.mark.parametrize("name", miopen_splits.SPLITS)
def test_splits_share_nothing_whatever_the_order_of_rows(name: str) -> None:
    records = made_up()
    split = miopen_splits.make_split(name, records, SCORED, 7)
    again = miopen_splits.make_split(name, records[::-1], SCORED, 7)
    assert split.train
    assert split.test
    assert miopen_splits.leaks(split.train, split.test, name) == frozenset()
    assert set(split.test) == set(again.test)
    assert set(split.train) == set(again.train)


def test_what_each_split_scores() -> None:
    records = made_up()
    made = {
        name: miopen_splits.make_split(name, records, SCORED, 0) for name in miopen_splits.SPLITS
    }
    for name in ("a", "b"):
        assert {r.source for r in made[name].test} == {SCORED}
        assert {r.source for r in made[name].train} == set(SOURCES)
        assert {r.problem for r in made[name].test}.isdisjoint(r.problem for r in made[name].train)
    assert len(made["c"].test) == len(made["c-device"].test) == 128
    assert {r.source for r in made["c"].train} == {"gfx900_56_2019"}
    assert {r.source for r in made["c-device"].train} == {"gfx900_56_2019", "gfx906_64_2019"}
    assert {r.source for r in made["d"].train} == set(SOURCES[:3])
    assert {(r.problem.k, r.source) for r in made["d"].test} == {(48, SOURCES[-1])}
    assert miopen_splits.repeated(records, SCORED) == (160, 128, 128)
    other = miopen_splits.make_split("a", records, SCORED, 1)
    assert set(other.test) != set(made["a"].test)
    everywhere = miopen_splits.make_split("a", records, miopen_splits.ALL, 0)
    assert {r.source for r in everywhere.test} == set(SOURCES)
    assert everywhere.train == made["a"].train


def test_a_solver_that_the_database_lacks_is_scored_on_the_next() -> None:
    records = [r for r in made_up() if r.source != SCORED]
    split = miopen_splits.make_split("b", records, SCORED, 0)
    assert {r.source for r in split.test} == {"gfx906_60_2023a"}


def test_copies_are_left_out_together() -> None:
    records = [record(problem(16, 16, 7, 1), s) for s in ("gfx803_36", *SOURCES)]
    split = miopen_splits.make_split("c", records, "gfx900_56_2019", 0)
    assert {r.source for r in split.train} == set(SOURCES[1:])
    assert miopen_splits.leaks(records[:1], split.test, "c") == {"gfx803/gfx900"}


def test_unknown_splits_are_refused() -> None:
    with pytest.raises(ValueError, match="expected a split among"):
        miopen_splits.make_split("e", made_up(), SCORED, 0)
    with pytest.raises(ValueError, match="one GPU"):
        miopen_splits.make_split("c", made_up(), miopen_splits.ALL, 0)


@lru_cache(maxsize=1)
def real_records() -> tuple[PerfRecord, ...]:
    solvers = ("ConvAsm3x3U", "ConvAsmBwdWrW3x3", "ConvHipImplicitGemmV4R4Fwd")
    return tuple(miopen_splits.read_examples(REAL, solvers, miopen_splits.DTYPES)[0])


@needs_records
@pytest.mark.heavy
@pytest.mark.parametrize("name", miopen_splits.SPLITS)
def test_nothing_leaks_on_the_real_records(name: str) -> None:
    """And a random split of the rows, as it is often done, is caught."""
    records = real_records()
    split = miopen_splits.make_split(name, records, SCORED, 0)
    assert len(split.test) > 100
    assert miopen_splits.leaks(split.train, split.test, name) == frozenset()
    held_out = np.random.default_rng(0).random(len(records)) < miopen_splits.HELD_OUT
    train = [r for r, out in zip(records, held_out, strict=True) if not out]
    test = [r for r, out in zip(records, held_out, strict=True) if out]
    assert len(miopen_splits.leaks(train, test, name)) >= 4


@settings(deadline=None)  # the first look at a problem builds its space
@given(st.data())
@pytest.mark.parametrize("name", ["ConvAsm1x1U", "ConvAsm3x3U", "ConvHipImplicitGemmV4R4Fwd"])
def test_holds_says_what_the_space_says(name: str, data: st.DataObject) -> None:
    solver = SOLVERS[name]
    p = data.draw(problems(solver))
    space = space_of(name, p, full=True)
    values = tuple(data.draw(st.sampled_from([*r[:3], 5, 64])) for r in space.ranges)
    assert miopen_splits.holds(space, values) == space.contains(values)
    assert not miopen_splits.holds(space, values[:-1])


# scores


@pytest.mark.parametrize(
    ("a", "b", "edits"),
    [((), (), 0), ((1, 2, 3), (1, 2, 3), 0), ((1, 2, 3), (1, 4, 3), 1), ((1, 2), (2, 1), 2),
     ((1, 2, 3, 4), (2, 3, 4, 5), 2), ((), (1, 2), 2)],
)  # fmt: skip
def test_edit_distance(a: tuple[int, ...], b: tuple[int, ...], edits: int) -> None:
    assert miopen_scores.levenshtein(a, b) == edits
    assert miopen_scores.levenshtein(b, a) == edits


VALUES = st.lists(st.integers(0, 2), max_size=6)


@settings(deadline=None)
@given(VALUES, VALUES)
def test_edit_distance_by_definition(a: list[int], b: list[int]) -> None:
    @cache
    def distance(i: int, j: int) -> int:
        if not i or not j:
            return i + j
        same = distance(i - 1, j - 1) + (a[i - 1] != b[j - 1])
        return min(same, distance(i - 1, j) + 1, distance(i, j - 1) + 1)

    assert miopen_scores.levenshtein(a, b) == distance(len(a), len(b))


def test_scores_by_hand() -> None:
    answers = [
        miopen_scores.Answer("p", (1, 2), ((1, 2), (3, 4)), True),
        miopen_scores.Answer("q", (1, 2), ((1, 4), (1, 2)), True),
        miopen_scores.Answer("r", (1, 2), ((2, 1), *((9, n) for n in range(8)), (1, 2)), False),
        miopen_scores.Answer("s", (1, 2), (), False),
    ]
    found = miopen_scores.score(answers, 10, 0)
    values = {metric: spread.value for metric, spread in found.items()}
    assert values == {
        "valid": 0.5,
        "per_parameter": (1 + 0.5 + 0 + 0) / 4,
        "top1": 0.25,
        "top5": 0.5,
        "top10": 0.75,
        "edit_distance": (0 + 1 + 2 + 2) / 4,
    }
    assert all(spread.low < spread.value < spread.high for spread in found.values())
    assert found["top1"] == wilson(1, 4)
    assert set(miopen_scores.score(answers, 1, 0)) == set(values) - {"top5", "top10"}
    assert "top10" not in miopen_scores.score(answers, 5, 0)
    with pytest.raises(ValueError, match="at least one answer"):
        miopen_scores.score([], 1, 0)


def test_bootstrap_draws_whole_clusters() -> None:
    """A hundred copies of two problems are two draws, not two hundred."""
    samples = [0.0] * 100 + [1.0] * 100
    one_by_one = miopen_scores.bootstrap(samples, range(200), 0)
    copies = miopen_scores.bootstrap(samples, [0] * 100 + [1] * 100, 0)
    assert one_by_one.value == copies.value == 0.5
    assert 0.55 < one_by_one.high < 0.6  # 0.5 + 1.96 sqrt(0.25 / 200) = 0.569
    assert (copies.low, copies.high) == (0, 1)


# methods


def query(p: ConvProblem, source: str = SCORED) -> miopen_rivals.Query:
    return miopen_rivals.query_of(record(p, source))


def test_majority_ranks_its_own_database_first() -> None:
    p = problem(16, 16, 56, 1)
    train = [record(p, SCORED, v) for v in [(0, 1, 1)] * 2 + [(0, 2, 1)] * 3]
    train += [record(p, SOURCES[0], v) for v in [(1, 1, 1)] * 9 + [(0, 1, 1)]]
    majority = miopen_rivals.Majority()
    majority.fit(train)
    assert majority.predict([query(p)], 10, True) == [[(0, 2, 1), (0, 1, 1), (1, 1, 1)]]
    assert majority.predict([query(p)], 1, True) == [[(0, 2, 1)]]
    assert majority.predict([query(p, "gfx906_64_2019")], 1, True) == [[(1, 1, 1)]]


def test_the_mask_takes_what_the_solver_refuses() -> None:
    """8 filters x 8 lines of 230 columns do not fit the registers."""
    p = problem(16, 16, 230, 1)
    train = [record(p, SCORED, v) for v in [(0, 8, 8)] * 2 + [(0, 1, 1)]]
    for rival in (miopen_rivals.Majority(), miopen_rivals.NearestNeighbour()):
        rival.fit(train)
        assert rival.predict([query(p)], 2, False) == [[(0, 8, 8), (0, 1, 1)]]
        assert rival.predict([query(p)], 2, True) == [[(0, 1, 1)]]


def test_nearest_neighbour_goes_by_ratios_and_prefers_its_gpu() -> None:
    near, far = problem(16, 16, 14, 8), problem(16, 16, 14, 64)
    asked = problem(16, 16, 14, 16)
    rival = miopen_rivals.NearestNeighbour()
    rival.fit(
        [
            record(far, SCORED, (0, 4, 1)),
            record(near, "gfx900_56_2019", (0, 3, 1)),  # as far as another GPU is: 1 + 1
            record(near, "gfx906_64_2019", (0, 2, 1)),
            record(near, SCORED, (0, 1, 1)),
        ]
    )
    expected = [(0, 1, 1), (0, 2, 1), (0, 3, 1), (0, 4, 1)]
    assert rival.predict([query(asked)], 10, True) == [expected]


def test_nearest_neighbour_goes_on_behind_the_first() -> None:
    rival = miopen_rivals.NearestNeighbour()
    train = [record(problem(16, 16, 14, n), SCORED) for n in range(1, 400)]
    rival.fit([*train, record(problem(16, 16, 14, 4096), SCORED, (0, 2, 1))])
    assert rival.predict([query(problem(16, 16, 14, 1))], 2, True) == [[(0, 1, 1), (0, 2, 1)]]


LEARNERS: dict[str, Callable[[int, int], miopen_rivals.Rival]] = {
    "extratrees-chain": lambda updates, seed: miopen_trees.TreeChain(3 + updates // 20, seed),
    "extratrees-tuple": lambda updates, seed: miopen_trees.TupleForest(3 + updates // 20, seed),
    "ktn-lstm": miopen_ktn.KernelTuningNet,
}


@needs_sklearn
@pytest.mark.parametrize("name", LEARNERS)
def test_learners_learn_a_rule(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Held-out problems of a rule over two sizes."""
    monkeypatch.setattr(miopen_ktn, "_BATCH", 32)
    monkeypatch.setattr(miopen_ktn, "_LEARNING_RATE", 0.02)
    split = miopen_splits.make_split("a", made_up((SCORED,)), SCORED, 0)
    learner = LEARNERS[name](150, 0)
    learner.fit(split.train)
    asked = [miopen_rivals.query_of(r) for r in split.test]
    answers = learner.predict(asked, learner.variants[name], True)
    right = [found[0] == r.values for found, r in zip(answers, split.test, strict=True)]
    assert np.mean(right) >= 0.75


@needs_sklearn
@pytest.mark.parametrize("name", LEARNERS)
def test_learners_repeat_with_the_seed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(miopen_ktn, "_BATCH", 8)
    rng = np.random.default_rng(0)
    train = [record(problem(16, 16, 14, n), SCORED, (int(rng.integers(10)), 1, 1))
             for n in range(1, 60)]  # fmt: skip
    asked = [query(problem(16, 16, 14, n)) for n in range(60, 100)]
    answers = []
    for seed in (0, 0, 1):
        learner = LEARNERS[name](3, seed)
        learner.fit(train)
        answers.append(learner.predict(asked, 10, True))
    assert answers[0] == answers[1] != answers[2]


@needs_sklearn
@pytest.mark.parametrize("name", LEARNERS)
def test_learners_keep_to_the_mask(name: str) -> None:
    """Trained on tuples that this problem refuses, each still answers with a legal one."""
    p = problem(16, 16, 230, 1)
    learner = LEARNERS[name](5, 0)
    train = [record(problem(16, k, 7, n), SCORED, (0, 8, 8 if k < 24 else 1))
             for k in (16, 32) for n in range(1, 9)]  # fmt: skip
    learner.fit([*train, *(record(p, SCORED) for _ in range(3))])
    width = max(learner.variants.values())
    found = learner.predict([query(p)], width, True)[0]
    assert len(set(found)) == len(found) >= 1
    assert all(space_of(SOLVER, p, full=True, device="gfx906_60").contains(v) for v in found)


@needs_sklearn
def test_beams_of_the_chain_are_ranked_and_hold_the_greedy_path() -> None:
    """Against the product of the forests' probabilities over every tuple of the space."""
    train = [record(p, SCORED, v) for n in range(1, 30) if (p := problem(16, 16, 14, n))
             for v in [best(p), (n % 3, 1 + n % 2, 1 + n % 4)]]  # fmt: skip
    chain = miopen_trees.TreeChain(5, 0)
    chain.fit(train)
    p = problem(16, 16, 14, 40)
    space = space_of(SOLVER, p, full=True, device="gfx906_60")
    found = chain.predict([query(p)], 640, True)[0]
    assert sorted(found) == sorted(space.enumerate())
    assert chain.predict([query(p)], 1, False)[0][0] == (chain.predict([query(p)], 1, True)[0][0])

    def chance(values: Prefix) -> float:
        product = 1.0
        for place, forest in enumerate(chain._forests):
            row = [*miopen_rivals.numbers_of(query(p)), *values[:place]]
            shares = dict(zip(forest.classes_, forest.predict_proba([row])[0], strict=True))
            product *= shares.get(values[place], 0.0)
        return product

    chances = [chance(values) for values in found[:20]]
    assert chances == pytest.approx(sorted(chances, reverse=True))
    assert chances[0] == pytest.approx(max(chance(values) for values in space.enumerate()))


def test_one_model_for_each_architecture(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(miopen_rivals, "ENOUGH", 3)
    p = problem(16, 16, 14, 1)
    train = [record(p, "gfx906_64_2019", (0, 1, 1))] * 3 + [record(p, SOURCES[0], (0, 2, 1))] * 2
    train += [record(p, "gfx803_36", (0, 2, 1))] * 2
    special = miopen_rivals.Specialised(miopen_rivals.Majority)
    special.fit(train)
    asked = [query(p, source) for source in (SCORED, "gfx900_56_2023", "gfx906_60_2023a")]
    assert special.predict(asked, 1, True) == [[(0, 1, 1)], [(0, 2, 1)], [(0, 1, 1)]]


# the script


def table(records: Sequence[PerfRecord], judged: bool = True) -> str:
    names = "set solver dir dtype layout C H W y x K Ho Wo N ph pw sh sw dh dw g params valid"
    columns = names.split()
    lines = ["\t".join(columns if judged else columns[:-1])]
    for r in records:
        p = r.problem
        sizes = (p.c, p.h, p.w, p.y, p.x, p.k, p.ho, p.wo, p.n, p.pad_h, p.pad_w)
        steps = (p.stride_h, p.stride_w, p.dilation_h, p.dilation_w, p.groups)
        row = [r.source, r.solver, p.direction, p.dtype, p.layout, *map(str, sizes + steps)]
        lines.append("\t".join([*row, ",".join(map(str, r.values)), *(["ok"] * judged)]))
    return "\n".join(lines) + "\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("miopen")
    with lzma.open(made / miopen.FILE, "wt") as file:
        file.write(table(made_up()))
    return made


def run(folder: Path, *arguments: str) -> list[dict[str, Any]]:
    out = folder / "rows.json"
    common = ["--data", str(folder), "--quick", "--solvers", SOLVER, "--format", "json"]
    miopen.main([*common, "--out", str(out), *arguments])
    rows: list[dict[str, Any]] = json.loads(out.read_text())[1:]
    return rows


@needs_sklearn
def test_whole_run(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = run(folder, "--splits", "a", "d")
    assert {row["case"] for row in rows} == {f"{SOLVER} FP32 a", f"{SOLVER} FP32 d"}
    values = {(r["case"][-1], r["method"], r["metric"]): r["value"] for r in rows}
    metrics = ["valid", "per_parameter", "top1", "top5", "top10", "edit_distance"]
    for split in "ad":
        for method in miopen.METHODS:
            wide = method in ("majority", "1-nn", "extratrees-tuple", "ours")
            found = [metric for s, m, metric in values if (s, m) == (split, method)]
            assert found == (metrics if wide else [*metrics[:3], metrics[5]])
            assert values[split, method, "valid"] == 1
            assert (split, f"{method}-unmasked", "valid") in values
        assert (split, "extratrees-chain-beam-10", "top10") in values
    assert all(row["low"] <= row["value"] <= row["high"] for row in rows)
    # the sister database holds the same tuples; in 2023 there is none
    assert values["a", "label-noise", "top1"] == values["a", "label-noise", "per_parameter"] == 1
    assert ("d", "label-noise", "top1") not in values
    assert values["a", "1-nn", "top1"] > values["a", "majority", "top1"]
    told = capsys.readouterr().err
    assert "of 160 records of 2023, 128 repeat a problem of 2019" in told
    assert f"{SOLVER} FP32 a 1-nn: " in told


def test_noise_of_problems_that_were_tuned_twice() -> None:
    """Only where another solver's tuples differ is the agreement one of two tuning runs."""
    twice, once = problem(16, 16, 14, 1), problem(16, 16, 14, 2)
    records = [
        *(record(p, source) for p in (twice, once) for source in SOURCES[1:3]),
        *(replace(record(once, source), solver="Other") for source in SOURCES[1:3]),
        replace(record(twice, SOURCES[1]), solver="Other", values=(7,)),
        replace(record(twice, SOURCES[2]), solver="Other", values=(8,)),
    ]
    case = miopen.Case("case", (), tuple(r for r in records[:4] if r.source == SCORED))
    records[1] = replace(records[1], values=(0, 1, 2))  # of the sister
    rows = {(r.method, r.metric): r.value for r in miopen.label_noise(case, records, 0)}
    assert rows["label-noise", "top1"] == 0.5
    assert rows["label-noise-retuned", "top1"] == 0
    assert rows["label-noise-retuned", "per_parameter"] == pytest.approx(2 / 3)


def test_a_table_that_was_never_seen(folder: Path, tmp_path: Path) -> None:
    """Plain, and without the last column; majority needs no package."""
    asked = [record(problem(24, 64, 28, n), "gfx906_60_2019", (0, 2, 2)) for n in (2, 8)]
    asked.append(record(problem(24, 64, 230, 3), "gfx906_60_2019", (0, 8, 8)))  # refused
    path = tmp_path / "never_seen.tsv"
    path.write_text(table(asked, judged=False))
    rows = run(folder, "--test", str(path), "--methods", "majority", "1-nn")
    assert {row["case"] for row in rows} == {f"{SOLVER} FP32 test"}
    values = {(r["method"], r["metric"]): r["value"] for r in rows}
    assert values["1-nn", "top1"] == 1
    kept, skipped = miopen_splits.read_examples(path, (SOLVER,), ("FP32",))
    assert [r.problem.n for r in kept] == [2, 8]
    assert skipped == Counter({"tuple that the rules refuse": 1})


def test_records_left_out_are_counted(tmp_path: Path) -> None:
    half = replace(problem(16, 16, 14, 1), dtype="FP16")
    records = [record(problem(16, 16, 14, 1), SCORED), record(half, SCORED)]
    path = tmp_path / "table.tsv"
    path.write_text(table(records) + "damaged\n")
    _, skipped = miopen_splits.read_examples(path, (SOLVER,), ("FP32",))
    assert skipped == {"malformed line": 1, "data type not asked for": 1}
    _, skipped = miopen_splits.read_examples(path, (SOLVER,), ("FP32", "FP16"))
    assert skipped == {"malformed line": 1, "problem that the solver cannot compute": 1}


def test_bad_input_is_told(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        miopen.main(["--data", str(tmp_path)])
    assert stopped.value.code == 2
    assert f"records at {tmp_path / miopen.FILE}, which is not there" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="expected all or a database among gfx900_56_2019"):
        run(folder, "--device", "gfx908_120")
    broken = tmp_path / "broken.tsv"
    broken.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(SystemExit, match="expected a table of MIOpen's records"):
        run(folder, "--test", str(broken))


def test_missing_packages_are_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert miopen.runnable(["majority", "extratrees-chain", "ktn-lstm", "1-nn"], 1) == [
        "majority",
        "1-nn",
    ]
    assert "scikit-learn is not installed (pip install scikit-learn)" in capsys.readouterr().err
