"""Problems, spaces and costs with known answers, and how candidates are drawn from them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from tunerplugin.predictor import Example, Predictor
from tunerplugin.space import Knob, ListSpace, Prefix, Problem, Space, Value

MATMUL = Problem(
    (
        ("op", "matmul"),
        ("m", 512),
        ("n", 768),
        ("k", 256),
        ("dtype", "float32"),
        ("l1_bytes", 32768),
    )
)


def divisors(number: int) -> tuple[int, ...]:
    return tuple(d for d in range(1, number + 1) if number % d == 0)


def tile_case(extent: int, limit: int) -> tuple[Problem, ListSpace, tuple[Value, ...]]:
    """The best tile is the largest divisor within the limit; the best vector divides it."""
    problem = Problem((("op", "copy"), ("extent", extent), ("limit", limit), ("dtype", "float32")))
    words = [(("kind", "tile"), ("extent", extent)), (("kind", "vector"),)]
    space = ListSpace(["tile", "vector"], [divisors(extent), (1, 2, 4, 8)], words=words)
    tile = max(d for d in divisors(extent) if d <= limit)
    return problem, space, (tile, max(v for v in (1, 2, 4, 8) if tile % v == 0))


def matmul_space(m: int = 512, n: int = 768, k: int = 256) -> ListSpace:
    """Eight knobs; the second tile of an axis divides what the first leaves."""
    names = ["mo", "mi", "no", "ni", "ki", "vector", "unroll", "parallel"]
    tiles: list[tuple[Value, ...] | Callable[[Prefix], tuple[Value, ...]]] = [
        divisors(m),
        lambda p: divisors(m // int(p[0])),
        divisors(n),
        lambda p: divisors(n // int(p[2])),
        divisors(k),
    ]
    flags: list[tuple[Value, ...]] = [
        (1, 2, 4, 8, 16),
        (0, 16, 64, 512),
        ("none", "outer", "fused"),
    ]
    words = [(("kind", "tile"), ("axis", name[0]), ("level", name[1])) for name in names[:5]]
    return ListSpace(names, [*tiles, *flags], words=[*words, *((("kind", x),) for x in names[5:])])


def matmul_cost(values: Sequence[Value]) -> float:
    """log2 seconds: each tile has a best size, the working set must fit, the vector divide."""
    _, mi, _, ni, ki, vector, unroll, parallel = values
    assert isinstance(mi, int) and isinstance(ni, int) and isinstance(ki, int)
    assert isinstance(vector, int) and isinstance(unroll, int) and isinstance(parallel, str)
    cost = 0.3 * abs(math.log2(mi) - 3) + 0.25 * abs(math.log2(ni) - 5)
    cost += 0.2 * abs(math.log2(ki) - 4) + 0.3 * abs(math.log2(vector) - 3)
    cost += {0: 0.5, 16: 0.1, 64: 0.0, 512: 0.6}[unroll]
    cost += {"none": 2.0, "outer": 0.3, "fused": 0.0}[parallel]
    working_set = 4 * (mi * ki + ki * ni + mi * ni)
    return cost + 0.8 * max(0.0, math.log2(working_set / 32768)) + float(ni % vector != 0)


def sample(space: Space, rng: np.random.Generator) -> Prefix:
    """A random legal candidate."""
    values: Prefix = ()
    while space.knob(values) is not None:
        legal = space.legal_values(values)
        values = (*values, legal[int(rng.integers(len(legal)))])
    return values


def sample_distinct(space: Space, count: int, rng: np.random.Generator) -> list[Prefix]:
    """Distinct random candidates."""
    found: dict[Prefix, None] = {}
    while len(found) < count:
        found[sample(space, rng)] = None
    return list(found)


def examples_of(
    problem: Problem, space: Space, candidates: Sequence[Prefix], costs: Sequence[float | None]
) -> list[Example]:
    """Measured candidates; cost is log2 seconds, ``None`` a failure."""
    best = min(cost for cost in costs if cost is not None)
    return [
        Example(
            problem, space.steps(v), space.describe(v), None if c is None else 2.0 ** (best - c)
        )
        for v, c in zip(candidates, costs, strict=True)
    ]


def spearman(a: NDArray[np.float64], b: NDArray[np.float64]) -> float:
    """Rank correlation (no ties expected)."""
    first, second = (np.argsort(np.argsort(x)).astype(np.float64) for x in (a, b))
    return float(np.corrcoef(first, second)[0, 1])


def decode(
    predictor: Predictor, problem: Problem, space: Space, values: Prefix
) -> list[NDArray[np.float64]]:
    """Log-probabilities of the legal values at each step along one candidate, incrementally."""
    state, scores = predictor.start(problem), []
    for length, value in enumerate(values):
        knob = knob_at(space, values[:length])
        scores.append(predictor.score(state, [knob], [space.legal_values(values[:length])])[0])
        state = predictor.extend(state, [0], [knob], [value])
    return scores


def knob_at(space: Space, prefix: Prefix) -> Knob:
    """The next knob of an incomplete prefix."""
    knob = space.knob(prefix)
    assert knob is not None
    return knob


def draw(
    predictor: Predictor, problem: Problem, space: Space, count: int, rng: np.random.Generator
) -> list[Prefix]:
    """Candidates drawn from the predictor's own probabilities, as one batch."""
    state = predictor.start(problem)
    prefixes: list[Prefix] = [()]
    parents = [0] * count
    while space.knob(prefixes[0]) is not None:
        knobs = [knob_at(space, p) for p in prefixes]
        legal = [space.legal_values(p) for p in prefixes]
        scores = predictor.score(state, knobs, legal)
        picks = [legal[i][int(rng.choice(len(legal[i]), p=np.exp(scores[i])))] for i in parents]
        state = predictor.extend(state, parents, [knobs[i] for i in parents], picks)
        prefixes = [(*prefixes[i], v) for i, v in zip(parents, picks, strict=True)]
        parents = list(range(count))
    return prefixes
