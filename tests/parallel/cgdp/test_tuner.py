"""The chunks of a run: fixed, searched, proposed by a model, kept in a file; and the same curve whatever is tried."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bpt.config.plan.resolve import read_plan
from bpt.parallel.cgdp import layer_costs
from bpt.parallel.cgdp import tuner as under_test
from bpt.parallel.cgdp.calibration import IterationKind
from bpt.parallel.cgdp.chunks import CandidateSearch, ChunkSearch
from bpt.parallel.cgdp.cost_model import TrainedLayerCost, candidates
from bpt.parallel.cgdp.layer_costs import CalibrationResult
from bpt.parallel.cgdp.tuner import CANDIDATES, Chunks
from bpt.system.comm.base import Communicator
from bpt.train.runtime.autotuner import WARM_UP
from bpt.train.solver.solver import Solver
from tests.support.doubles.thread_ranks import run_ranks
from tests.support.marks import slow
from tests.support.spread_runs import assert_same_lines, set_up, train

CGDP = "parallel_param {{ exchange: CGDP cgdp_param {{ {} }} }}"
MODEL = CGDP.format("interval: 1 chunking: MODEL")
# Of "ip", "fc" and "conv", the three layers with trained parameters.
LAYERS = (
    TrainedLayerCost("ip", 4, bp=1.0, d2h=0.5, accumulate=0.5, bc=0.5),
    TrainedLayerCost("fc", 2, bp=1.0, d2h=0.5, accumulate=0.5, bc=0.5),
    TrainedLayerCost("conv", 1, bp=1.0, d2h=0.125, accumulate=0.125, bc=0.125),
)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    set_up(tmp_path)
    return tmp_path


def on_ranks(ranks: int, work: Callable[[Solver, int], Any], *overrides: str) -> list[Any]:
    """What ``work`` returns on each rank, which it gets with its solver."""

    def run(comm: Communicator) -> Any:
        source = read_plan("solver.prototxt", overrides)
        with Solver(source, world=comm) as solver:
            return work(solver, comm.rank)

    return run_ranks(ranks, run)


def state(solver: Solver, rank: int = 0) -> tuple[tuple[int, ...], int, bool, bool]:
    chunks = solver.runtime.tuner.chunks
    return chunks.lengths, len(solver.runtime.nets.train.operator.segments), chunks.search is None, chunks.settled


@pytest.mark.parametrize(("size", "lengths"), [(1, (1, 1, 1)), (2, (2, 1)), (3, (1, 1, 1)), (9, (3,))])
def test_a_fixed_size(size: int, lengths: tuple[int, ...]) -> None:
    expected = lengths, len(lengths), True, True
    assert on_ranks(2, state, CGDP.format(f"chunk_size: {size}")) == [expected] * 2


def test_who_has_no_chunks() -> None:
    """Another exchange, a rank that is alone, and a net that is cut into layers to be looked at."""
    assert [lengths for lengths, *_ in on_ranks(2, state)] == [()] * 2
    assert on_ranks(1, state, MODEL) == [((), 1, True, True)]
    for lengths, segments, *rest in on_ranks(2, state, MODEL, "debug_info: true"):
        assert (lengths, segments, rest) == ((), 8, [True, True])


def test_the_paper_s_search_by_the_slowest_rank(caplog: pytest.LogCaptureFixture) -> None:
    """Rank r is slow with the (r + 1)-th size: 1, 2, 3 (the same chunks as 1), and more than all layers."""
    seconds = {(1, 1, 1): (0.5, 0.1, 0.1), (2, 1): (0.1, 0.4, 0.1), (3,): (0.1, 0.2, 0.45)}

    def search(solver: Solver, rank: int) -> list[tuple[int, ...]]:
        chunks = solver.runtime.tuner.chunks
        seen = [chunks.lengths]
        while not chunks.record(seconds[chunks.lengths][rank]):
            seen.append(chunks.lengths)
        assert isinstance(chunks.search, ChunkSearch)
        assert [trial.seconds for trial in chunks.search.trials] == pytest.approx([1.0, 0.8, 1.0, 0.9])
        assert state(solver) == ((2, 1), 2, False, True)
        return seen

    with caplog.at_level(logging.INFO, "bpt"):
        (first, *others) = on_ranks(3, search, CGDP.format("interval: 2"))
    assert [cut for cut, _ in itertools.groupby(first)] == [(1, 1, 1), (2, 1), (1, 1, 1), (3,)]
    assert others == [first] * 2
    assert "Chunks: searching, 2 iterations each; 3 layers have weights" in caplog.messages
    assert "Chunks: chunk size 2, that is chunks 1x2 1x1: 400.00 ms an iteration" in caplog.messages
    assert "Chunks: chosen after 4 trials: chunks 1x2 1x1" in caplog.messages


def made_up(monkeypatch: pytest.MonkeyPatch, per_chunk: float, blocking_share: float) -> CalibrationResult:
    """What any calibration finds from now on."""
    result = CalibrationResult(LAYERS, per_chunk, blocking_share, {})
    monkeypatch.setattr(layer_costs, "measured", lambda places, laps, passes: result)
    return result


def finish_calibration(chunks: Chunks) -> list[tuple[IterationKind | None, bool, bool]]:
    """Record iterations without times until another search begins; the kinds, and whether clocks were to be precise."""
    seen = []
    exchange: Any = chunks._exchange
    while chunks.search is None and not chunks.settled:
        seen.append((chunks._kind, chunks._events.before_end is not None, exchange.timed))
        chunks.record(0.0)
    return seen


def test_a_proposal_of_the_model_and_its_refinement(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    found = made_up(monkeypatch, per_chunk=0.25, blocking_share=0.5)
    expected = candidates(found.costs, CANDIDATES)
    assert len(expected) == 3

    def search(solver: Solver, rank: int) -> tuple[Any, ...]:
        chunks = solver.runtime.tuner.chunks
        kinds = finish_calibration(chunks)
        assert chunks.measured is found
        assert isinstance(chunks.search, CandidateSearch)
        tried = [chunks.lengths]
        while not chunks.record(0.5 if chunks.lengths == expected[2] else 1.0 + rank):
            tried.append(chunks.lengths)
        return kinds, tried, state(solver)

    with caplog.at_level(logging.INFO, "bpt"):
        (first, second) = on_ranks(2, search, MODEL)
    assert first == second
    kinds, tried, (lengths, segments, _, settled) = first
    whole, apart, single, middle = (
        IterationKind((3,)),
        IterationKind((1,) * 3, after_backward=True),
        IterationKind((1,) * 3),
        IterationKind((2, 1)),
    )
    # Of each kind one iteration to warm up, and one that counts.
    assert (
        kinds
        == [(whole, True, True)] * 2
        + [(apart, True, True)] * 2
        + [(single, False, False)] * 2
        + [(middle, False, False)] * 2
    )
    assert tried == expected
    assert (lengths, segments, settled) == (expected[2], len(expected[2]), True)
    assert "Chunks: measuring 3 layers, 8 iterations" in caplog.messages
    (proposal,) = {line for line in caplog.messages if "proposes" in line}
    # By hand, single layers: 3 s of backward, 3 · 0.25 and half of 1.5 + 1.5 s of t_as, and 0.375 s of "conv".
    assert proposal.endswith(" ms, 5625.00 ms with single layers")


def test_a_proposal_without_alternatives(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is tried then."""
    made_up(monkeypatch, per_chunk=0.25, blocking_share=0.5)
    monkeypatch.setattr(under_test, "CANDIDATES", 1)

    def search(solver: Solver, rank: int) -> bool:
        finish_calibration(solver.runtime.tuner.chunks)
        return solver.runtime.tuner.chunks.settled

    assert on_ranks(2, search, MODEL) == [True] * 2


@pytest.mark.parametrize(
    ("ranks", "overrides"),
    [
        slow(2, [MODEL]),
        (3, [CGDP.format("interval: 2 chunking: MODEL")]),
        slow(3, [CGDP.format("interval: 2")]),
        slow(4, [MODEL, "parallel_param { num_shards: 2 }"]),
        (4, [MODEL, "parallel_param { num_shards: 2 fc_param { scheme: MASTER_SLAVE } }"]),
    ],
)
def test_trials_are_training(ranks: int, overrides: list[str]) -> None:
    """Whatever is tried, the curve is that of one process."""
    expected = train(1, "max_iter: 14")
    seen = []
    run = train(ranks, "max_iter: 14", *overrides, each=lambda solver: seen.append(solver.runtime.tuner.chunks))
    assert_same_lines(run.lines, expected.lines)
    assert len({chunks.lengths for chunks in seen}) == 1


def test_a_choice_is_kept_and_used(caplog: pytest.LogCaptureFixture) -> None:
    kept = CGDP.format('interval: 1 choice: "choice.json"')
    seconds = {(1, 1, 1): 0.5, (2, 1): 0.1, (3,): 0.2}

    def search(solver: Solver, rank: int) -> None:
        while not solver.runtime.tuner.chunks.record(seconds[solver.runtime.tuner.chunks.lengths]):
            pass

    with caplog.at_level(logging.INFO, "bpt"):
        on_ranks(2, search, kept)
        assert "Chunks: the choice is kept in choice.json" in caplog.messages
        assert on_ranks(2, state, kept) == [((2, 1), 2, True, True)] * 2
        assert "Chunks: 1x2 1x1, as kept in choice.json; delete it to search anew" in caplog.messages
        # Neither with a fixed size nor on other ranks.
        assert on_ranks(2, state, kept, CGDP.format("chunk_size: 1")) == [((1, 1, 1), 3, True, True)] * 2
        caplog.clear()
        assert on_ranks(3, state, kept) == [((1, 1, 1), 3, False, False)] * 3
    (warning,) = {record.message for record in caplog.records if record.levelname == "WARNING"}
    assert "it is of 2 ranks = 2 replicas, now there are 3 ranks = 3 replicas" in warning


def test_a_choice_beside_the_solver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Paths start at the current folder, or else at the solver's."""
    kept = CGDP.format('interval: 1 chunking: MODEL choice: "choice.json"')
    train(2, "max_iter: 14", kept)
    (tmp_path / "elsewhere").mkdir()
    Path("choice.json").rename(tmp_path / "elsewhere" / "choice.json")
    for file in ("solver.prototxt", "net.prototxt"):
        Path(file).rename(tmp_path / "elsewhere" / file)

    def settled(comm: Communicator) -> bool:
        with Solver(read_plan("elsewhere/solver.prototxt", [kept]), world=comm) as solver:
            return solver.runtime.tuner.chunks.settled

    assert run_ranks(2, settled) == [True] * 2


def test_measuring_later_changes_nothing_that_stays() -> None:
    """As bpt time does, with kinds besides those that the model needs."""
    others = [IterationKind((1, 2)), IterationKind((3,))]

    def measure(solver: Solver, rank: int) -> CalibrationResult:
        chunks = solver.runtime.tuner.chunks
        chunks.calibrate(2, others)
        assert not chunks.settled
        solver.runtime.settle()
        assert state(solver) == ((2, 1), 2, True, True)
        assert solver.runtime.events.before_end is None
        assert solver.iter == WARM_UP + 2 * 5 * 2
        assert chunks.measured is not None
        return chunks.measured

    first, second = on_ranks(2, measure, CGDP.format("chunk_size: 2"), "test_interval: 100 display: 0")
    assert first == second
    # "ip" 3 · 7 + 3, "fc" 7 · 64 + 7, "conv" 4 · 2 · 9.
    assert [(layer.name, layer.elements) for layer in first.layers] == [("ip", 24), ("fc", 455), ("conv", 72)]
    assert sum(layer.bp for layer in first.layers) > 0
    assert all(layer.d2h > 0 and layer.bc > 0 and layer.reduce == 0 for layer in first.layers)
    assert IterationKind((1, 2)) in first.seen
    assert all(seen.total > 0 for seen in first.seen.values())
