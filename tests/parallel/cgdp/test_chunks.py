"""Chunks by the rule, and the search for good ones."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bpt.parallel.cgdp.chunks import CandidateSearch, ChunkSearch, CutSearch, Trial, chunks, describe


@pytest.mark.parametrize(
    ("layers", "size", "expected"),
    [
        (6, 1, (1, 1, 1, 1, 1, 1)),
        (6, 2, (2, 2, 1, 1)),  # 2 divides 6: 6/2 - 1 chunks of 2, then 2 of 1
        (6, 3, (3, 1, 1, 1)),
        (6, 4, (4, 1, 1)),  # 4 does not: 1 chunk of 4, what is left as chunks of 1
        (6, 5, (5, 1)),
        (6, 6, (1, 1, 1, 1, 1, 1)),  # 6/6 - 1 = 0 chunks of 6
        (6, 7, (6,)),  # beyond the paper
        (6, 100, (6,)),
        (152, 9, (9,) * 16 + (1,) * 8),  # Resnet-152 with the size that the paper found
        (152, 20, (20,) * 7 + (1,) * 12),
        (1, 1, (1,)),
        (0, 1, ()),
        (0, 5, ()),
    ],
)
def test_rule(layers: int, size: int, expected: tuple[int, ...]) -> None:
    assert chunks(layers, size) == expected
    assert sum(expected) == layers


@pytest.mark.parametrize("layers", range(1, 40))
def test_layers_stand_alone_at_the_end_only(layers: int) -> None:
    for size in range(2, layers + 1):
        lengths = chunks(layers, size)
        large = layers // size - (layers % size == 0)
        assert lengths[:large] == (size,) * large
        assert set(lengths[large:]) == {1}
        assert sum(lengths) == layers


@pytest.mark.parametrize(
    ("lengths", "text"), [((10, 10, 1, 1, 1), "2x10 3x1"), ((59, 37, 1), "1x59 1x37 1x1"), ((6,), "1x6"), ((), "none")]
)
def test_description(lengths: tuple[int, ...], text: str) -> None:
    assert describe(lengths) == text


RESNET = 152


def replay(search: ChunkSearch, seconds: Callable[[int], float]) -> int:
    """Train with ``seconds(chunk size)`` an iteration; the iteration at which the search stopped."""
    iteration = 0
    while not search.settled:
        iteration += 1
        assert iteration < 10_000
        search.record(seconds(search.size))
    return iteration


def best_at(best: int) -> Callable[[int], float]:
    return lambda size: 0.9 if size == best else 1.0


def test_stops_at_iteration_150_with_9() -> None:
    """The paper's "step = 10, range = 5": best at iteration 90; "ran 6 times after the iteration 90", to 150."""
    search = ChunkSearch(RESNET, step=10, range_=5, interval=10)
    assert replay(search, best_at(9)) == 150
    assert [trial.size for trial in search.trials] == [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 20, 30, 40, 50, 60]
    assert search.size == search.best == 9
    assert search.lengths == (9,) * 16 + (1,) * 8


@pytest.mark.parametrize("best", [3, 6, 9, 20])
def test_at_most_21_intervals(best: int) -> None:
    """Range 10 found 20, and "in all trainings the run-time algorithm finished in at most 21 iterations"."""
    search = ChunkSearch(RESNET, step=10, range_=10)
    assert replay(search, best_at(best)) <= 210
    assert search.best == best
    if best == 20:
        assert len(search.trials) == 21


@pytest.mark.parametrize(("step", "range_", "best"), [(10, 5, 1), (10, 5, 9), (7, 3, 4), (5, 1, 2), (2, 20, 1)])
def test_below_step_it_runs_another_step_minus_best_plus_range_times(step: int, range_: int, best: int) -> None:
    search = ChunkSearch(RESNET, step, range_)
    replay(search, best_at(best))
    assert len(search.trials) - best == step - best + range_


@pytest.mark.parametrize(("step", "range_", "best"), [(10, 5, 10), (10, 5, 30), (4, 3, 8), (1, 7, 1), (1, 7, 5)])
def test_from_step_on_it_runs_another_range_times(step: int, range_: int, best: int) -> None:
    search = ChunkSearch(RESNET, step, range_)
    replay(search, best_at(best))
    assert len(search.trials) - [trial.size for trial in search.trials].index(best) - 1 == range_


def test_recorded_times() -> None:
    """Times as in Fig. 3: falling, then rising, with noise; equal ones do not take over."""
    recorded = {1: 5.2, 2: 4.7, 3: 4.5, 4: 4.55, 5: 4.41, 6: 4.41, 7: 4.6, 14: 4.40, 21: 4.45, 28: 4.9}
    search = ChunkSearch(RESNET, step=7, range_=2, interval=1)
    replay(search, recorded.__getitem__)
    assert {trial.size: trial.seconds for trial in search.trials} == recorded
    assert search.best == 14
    tie = ChunkSearch(RESNET, step=7, range_=2, interval=1)
    replay(tie, {**recorded, 14: 4.41}.__getitem__)
    assert tie.best == 5


def test_lapse_is_the_time_of_the_whole_interval() -> None:
    search = ChunkSearch(RESNET, interval=3)
    assert [search.record(seconds) for seconds in (1.0, 2.0, 4.0, 1.0, 1.0)] == [False, False, True, False, False]
    assert search.trials == [Trial(1, 7.0, (1,) * RESNET)]
    assert search.size == 2
    assert search.lengths == chunks(RESNET, 2)
    assert search.record(1.0)
    assert search.trials[1] == Trial(2, 3.0, chunks(RESNET, 2))
    assert search.best == 2


def test_settled_it_ignores_times() -> None:
    search = ChunkSearch(RESNET, step=1, range_=1, interval=1)
    replay(search, best_at(1))
    trials = list(search.trials)
    assert not search.record(0.0)
    assert (search.trials, search.size) == (trials, 1)


@pytest.mark.parametrize(
    ("layers", "sizes"),
    [
        (8, [1, 2, 3, 4, 5, 6, 7, 8, 9]),  # 9 is the whole net, and so were 10, 20, …
        (10, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 20]),
        (22, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 20, 30]),
        (2, [1, 2, 3]),
    ],
)
def test_one_size_above_the_layers_is_enough(layers: int, sizes: list[int]) -> None:
    search = ChunkSearch(layers)
    replay(search, lambda size: 1 / size)
    assert [trial.size for trial in search.trials] == sizes
    assert search.best == sizes[-1]
    assert search.lengths == (layers,)


@pytest.mark.parametrize(("layers", "lengths"), [(0, ()), (1, (1,))])
def test_nothing_to_search(layers: int, lengths: tuple[int, ...]) -> None:
    search = ChunkSearch(layers)
    assert search.settled
    assert search.lengths == lengths
    assert not search.record(1.0)


def figure_4(lapses: Sequence[float], step: int, range_: int) -> tuple[list[int], int, bool]:
    """Fig. 4, plainly, with one time a trial: the sizes tried, the best one, and whether it stopped."""
    chunk = best_chunk = 1
    lapse_min = math.inf
    tried = []
    for lapse in lapses:
        tried.append(chunk)
        if lapse < lapse_min:
            best_chunk, lapse_min = chunk, lapse
        if not chunk < best_chunk + step * range_:
            return tried, best_chunk, True
        chunk = chunk + 1 if chunk < step else chunk + step
    return tried, best_chunk, False


@settings(deadline=None, max_examples=50)
@given(st.integers(1, 6), st.integers(1, 4), st.lists(st.integers(1, 5), min_size=80, max_size=80))
def test_against_figure_4(step: int, range_: int, lapses: list[int]) -> None:
    search = ChunkSearch(100_000, step, range_, interval=1)
    for lapse in lapses:
        search.record(lapse)
    tried, best, stopped = figure_4(lapses, step, range_)
    assert [trial.size for trial in search.trials] == tried
    assert search.best == best
    assert search.settled == stopped


A, B, C = (3, 1), (2, 2), (4,)


def feed(search: CutSearch, seconds: dict[tuple[int, ...], float]) -> list[tuple[int, ...]]:
    """Train with the times of cuts; the cut of every iteration."""
    used = []
    while not search.settled:
        used.append(search.lengths)
        search.record(seconds[search.lengths])
    return used


def test_candidates_are_tried_in_turn() -> None:
    search = CandidateSearch([A, B, C], interval=2)
    assert feed(search, {A: 1.0, B: 0.9, C: 0.8}) == [A, A, B, B, C, C]
    assert search.lengths == C
    assert search.trials == [Trial(None, 2.0, A), Trial(None, 1.8, B), Trial(None, 1.6, C)]
    assert not search.record(9.0)


@pytest.mark.parametrize(("challenger", "winner"), [(0.97, B), (0.981, A), (1.0, A), (1.5, A)])
def test_a_challenger_must_be_faster_by_the_margin(challenger: float, winner: tuple[int, ...]) -> None:
    search = CandidateSearch([A, B, C], interval=1)
    feed(search, {A: 1.0, B: challenger, C: 2.0})
    assert search.lengths == winner


def test_of_two_challengers_the_faster_wins() -> None:
    search = CandidateSearch([A, B, C], interval=1)
    feed(search, {A: 1.0, B: 0.80, C: 0.81})
    assert search.lengths == B


def test_a_slow_first_iteration_does_not_count() -> None:
    search = CandidateSearch([A, B], interval=3)
    ended = [search.record(seconds) for seconds in (50.0, 1.0, 1.1, 1.2, 1.2, 1.2)]
    assert ended == [False, False, True, False, False, True]
    assert search.trials[0].seconds == pytest.approx(3.3)
    assert search.lengths == A


def test_one_candidate_is_settled() -> None:
    search = CandidateSearch([A])
    assert search.settled
    assert search.lengths == A
    assert not search.record(1.0)


def test_trials_tell_of_themselves() -> None:
    assert str(Trial(9, 1.0, (9, 9, 1, 1))) == "chunk size 9"
    assert str(Trial(None, 1.0, (9, 9, 1, 1))) == "chunks 2x9 2x1"
