"""Learning MIOpen's performance databases, and choosing a solver's tuple without measuring.

    chooser = Chooser(train(read_records(Path("gfx906_60.cd.pdb.txt")), seed=0).predictor)
    problem = parse_key("256-56-56-1x1-256-56-56-48-0x0-1x1-1x1-0-NCHW-FP32-F")
    best_first = chooser.choose(problem, "ConvAsm1x1U", "gfx906_60", top=5)

After Mahmood et al., arXiv 2404.10162: a convolution's description is translated into the solver's
parameters.  One predictor serves all solvers, data types and devices; beside it the records of the
nearest known convolutions are heard (``memory``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from ...errors import InputError, RecordError, SpaceError
from ...predictor import Example, ModelConfig, OnStep, Predictor, TrainingConfig
from ...search import BeamSearch, Candidate, Explored, Scorer
from ..trained import Trained
from .devices import describe
from .memory import Memory, MemoryScorer, remember
from .problem import ConvProblem
from .records import PerfRecord
from .rules import RuledSpace
from .solvers import SOLVERS, space_of, training_steps

MODEL = ModelConfig(encoder="pooled")
"""Every problem has the same words here, so that a pooled encoder does (see ``ModelConfig``)."""

TRAINING = TrainingConfig(batch_size=256, value_weight=0.0)
"""Databases hold the best tuple of each problem only: there is nothing to compare."""

EPOCHS = 10
BEAM = 10
CONSENSUS = 4.0
"""What agreement with all of the beam is worth, against a tuple's own log-probability."""


def usable(
    records: Iterable[PerfRecord], skipped: Counter[str] | None = None
) -> Iterator[tuple[PerfRecord, Example]]:
    """Each record as a perfect answer, with what MIOpen accepts at every field as the choice.

    Problems that a solver cannot compute and tuples that today's rules refuse are left out;
    ``skipped`` counts them by reason.
    """
    counts: Counter[str] = Counter() if skipped is None else skipped
    for record in sorted(records, key=lambda record: (record.solver, str(record.problem))):
        try:
            steps = training_steps(
                record.problem, record.solver, record.values, True, record.device
            )
        except InputError:
            counts["problem that the solver cannot compute"] += 1
        except SpaceError:
            counts["tuple that today's rules refuse"] += 1
        else:
            yield record, Example(describe(record.problem, record.device), steps, (), 1.0)


def train(
    records: Iterable[PerfRecord],
    seed: int = 0,
    epochs: int = EPOCHS,
    on_step: OnStep | None = None,
    skipped: Counter[str] | None = None,
) -> Trained:
    """A predictor trained on databases, which remembers them too.

    ``skipped`` is what ``read_records`` left out while the records were read, and is counted with
    the rest.  Raises ``RecordError`` when no record can be used.
    """
    left_out: Counter[str] = Counter()
    pairs = list(usable(records, left_out))
    left_out += skipped or Counter()
    if not pairs:
        why = "; ".join(f"{count} left out: {reason}" for reason, count in left_out.most_common())
        raise RecordError(
            f"expected records of {', '.join(SOLVERS)}, got none that today's rules accept "
            f"({why or 'nothing was read'}): give performance databases of these (.db, .udb, "
            ".db.txt or .udb.txt), not find databases (.ufdb.txt)"
        )
    predictor = Predictor(seed, MODEL, TRAINING)
    report = predictor.fit((example for _, example in pairs), epochs=epochs, on_step=on_step)
    predictor.tables = remember((record for record, _ in pairs), seed)
    return Trained(predictor, len(pairs), left_out, report.decision_loss)


class Chooser:
    """Chooses tuples with a predictor that ``train`` made (or one loaded from a file)."""

    def __init__(self, predictor: Predictor) -> None:
        self._predictor = predictor
        self._memory = Memory(predictor.tables)

    def choose(
        self,
        problem: ConvProblem,
        solver: str,
        device: str,
        top: int = 1,
        beam: int = BEAM,
        space: RuledSpace | None = None,
    ) -> list[Candidate]:
        """The solver's likeliest tuples on a device, best first; fewer where fewer are legal.

        Best is as ``by_consensus`` has it.  ``beam`` is the width of the search; what a ``top``
        beyond it asks for comes from a wider one, after the first.  ``space`` stands in for all
        that MIOpen accepts.  Raises ``InputError`` for a solver or device that is not known, or a
        problem the solver cannot compute, and ``EmptySpaceError`` when no tuple is legal.
        """
        space = space or space_of(solver, problem, full=True, device=device)
        scorer: Scorer = self._predictor
        neighbours = self._memory.nearest(problem, solver, device)
        if neighbours is not None:
            scorer = MemoryScorer(self._predictor, neighbours)
        words = describe(problem, device)

        def search(width: int) -> list[Candidate]:
            beams = BeamSearch(words, space, scorer, Explored(space))
            found = beams.search(width, np.random.default_rng(0), temperature=0.0)
            return by_consensus(found)

        best = search(beam)
        if top > beam == len(best):  # whoever asks for more gets the same ones first
            known = {candidate.values for candidate in best}
            best += [other for other in search(top) if other.values not in known]
        return best[:top]


def by_consensus(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Candidates of equal length, first those that are likely and agree with what else is likely.

    Agreement is the expected share of equal values under the candidates' own probabilities
    (minimum Bayes risk, Kumar and Byrne, HLT-NAACL 2004).
    """
    values = np.array([candidate.values for candidate in candidates])
    logs = np.array([candidate.log_probability for candidate in candidates])
    weights = np.exp(logs - logs.max())
    weights /= weights.sum()
    agreement = np.zeros(len(candidates))
    for column in values.T:  # by field, for memory: beams may be long
        _, same = np.unique(column, return_inverse=True)
        agreement += np.bincount(same, weights)[same] / len(values.T)
    order = np.argsort(-(logs + CONSENSUS * agreement), kind="stable")
    return [candidates[place] for place in order]
