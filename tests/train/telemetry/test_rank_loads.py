"""Loads and scores of ranks, by numbers worked out by hand."""

from __future__ import annotations

from bpt.engine.instructions import Backward, Forward, UpdateWeights, Wait
from bpt.system.events.event import Activity
from bpt.system.events.totals import Key, Traffic
from bpt.train.telemetry.rank_loads import RankLoad, StragglerScores, load_of, straggler_lines

MIB = 2**20


def load(computing: float, data: float = 0.0, exchange: float = 0.0) -> RankLoad:
    return RankLoad("a", computing, data, exchange, 0.0, 100 * MIB)


def test_a_load_is_without_waiting_for_others_and_for_data() -> None:
    forward, backward = Forward(0).step, Backward(0).step
    totals = {
        Key(forward): Traffic(seconds=8.0),
        Key(forward, method="Allgatherv"): Traffic(seconds=2.0),
        Key(Activity.WAIT_FOR_DATA): Traffic(seconds=1.0),
        Key(backward): Traffic(seconds=4.0),
        Key(Wait().step): Traffic(seconds=3.0),
        Key(Wait().step, method="Allreduce"): Traffic(seconds=2.5),
        Key(UpdateWeights().step): Traffic(seconds=1.0),
    }
    # 8 + 4 + 1, of which 2 in calls and 1 for data
    assert load_of(totals, 2, "a", 7) == RankLoad("a", 5.0, 0.5, 1.5, 0.0, 7, layers=1.0)


def scored(scores: StragglerScores, ranks: list[int], *busy: float) -> list[tuple[float, float]]:
    return [(each.score, each.own_score) for each in scores.of(ranks, [load(seconds) for seconds in busy])]


def test_scores_are_against_the_fastest_rank_and_against_ones_own_best() -> None:
    scores = StragglerScores()
    assert scored(scores, [0, 3], 1.0, 2.0) == [(1, 1), (0.5, 1)]
    assert scored(scores, [0, 3], 4.0, 1.0) == [(0.25, 0.25), (1, 1)]
    assert scored(scores, [3], 2.0) == [(1, 0.5)]  # rank 0 was lost


def test_the_log_names_the_slowest_rank_and_the_reason() -> None:
    ranks = StragglerScores().of([0, 2], [load(0.010, 0.002, 0.020), load(0.004, 0.020, 0.001)])
    assert list(straggler_lines(ranks)) == [
        "    Slowest of 2 ranks: rank 2 (host a), busy 24 ms an iteration (it waits for data, 20 ms), the fastest 12 "
        "ms; exchange adds 1 ms to 20 ms; memory up to 100 MiB"
    ]


def test_a_rank_that_is_slowed_to_a_quarter_is_named_in_the_next_interval() -> None:
    scores = StragglerScores()
    assert len(list(straggler_lines(scores.of([0, 1], [load(0.010), load(0.010)])))) == 1
    _, slowed = straggler_lines(scores.of([0, 1], [load(0.010), load(0.040)]))
    assert slowed == (
        "    rank 1 (host a) has slowed down: busy 40 ms an iteration, 10 ms at its best (score 0.25); it "
        "computes, 40 ms"
    )
