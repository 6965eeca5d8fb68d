"""What is predicted beside what is seen, by hand: two ranks compute for 2 s, and a ring takes 1 s more."""

from __future__ import annotations

from pathlib import Path

import pytest

from bpt.perf.forecast.drift import Drift, PlanAssumptions
from bpt.train.telemetry.rank_loads import Predicted, RankLoad
from tests.support.small_forecasts import BYTES, nodes, small

EVEN = (4, 4)


def drift(folder: Path, parallel: str = "exchange: RING num_stages: 1 num_shards: 1") -> Drift:
    plan, costs = small(folder, f"parallel_param {{ auto: true {parallel} }}")
    return Drift(PlanAssumptions(plan, costs, nodes(2, 2, bandwidth=BYTES)))


def loads(*computing: float, exchange: float, data: float = 0.0) -> list[RankLoad]:
    """All are done when the slowest is."""
    return [RankLoad("ab"[n], own, data, max(computing) - own + exchange, 0.0, 0) for n, own in enumerate(computing)]


def told(what: Drift, *intervals: list[RankLoad]) -> list[str]:
    """What is said of the last of ``intervals``."""
    return [list(what.lines(each, EVEN)) for each in intervals][-1]


def test_each_phase_of_each_rank(tmp_path: Path) -> None:
    made = drift(tmp_path)
    assert made.predicted(EVEN) == [Predicted(2.0, 1.0, 0.0)] * 2
    assert made.predicted((5, 3)) == [Predicted(2.5, 0.5, 0.0), Predicted(1.5, 1.5, 0.0)]  # whose shares have moved
    assert made.predicted((8,)) is None  # a rank was lost
    assert told(made, *[loads(8.0, exchange=0.0)] * 3) == []


def test_a_run_as_predicted(tmp_path: Path) -> None:
    made, seen = drift(tmp_path), loads(2.1, 1.9, exchange=1.2)
    assert told(made, seen) == []  # memory layouts are tried
    assert told(made, seen) == [
        "    Predicted 3000 ms an iteration, seen 3300 ms: ranks are busy 2000 ms, seen 1900 ms to 2100 ms; exchange "
        "adds 1000 ms, seen 1200 ms"
    ]


def test_a_rank_that_is_slowed_calls_for_other_shares(tmp_path: Path) -> None:
    """To a quarter: of 8 samples it now does 1 in 2 s, and the other 7 in 3.5 s."""
    made, slowed = drift(tmp_path), loads(2.0, 8.0, exchange=1.0)
    assert len(told(made, slowed, slowed)) == 1  # may have been a moment's
    assert told(made, slowed)[1:] == [
        "Drift: an iteration takes 9000 ms, and 3000 ms were predicted: rank 1 (host b) computes 8000 ms, not 2000 ms; "
        "at the current speeds another plan would take 4500 ms instead of 9000 ms: continue from a snapshot with "
        "--set 'parallel_param { balance: DYNAMIC }'"
    ]
    assert len(told(made, slowed)) == 1  # has been told
    assert len(told(made, loads(2.0, 2.0, exchange=1.0), slowed)) == 1
    assert len(told(made, slowed)) == 2  # is told again, after it was well
    assert len(told(made, loads(0.5, 0.5, exchange=0.5))) == 1  # faster, which again may be a moment's


@pytest.mark.parametrize(
    ("seen", "reason"),
    [
        (loads(2.0, 2.0, exchange=5.0), "7000 ms, and 3000 ms were predicted: exchange adds 5000 ms, not 1000 ms"),
        (loads(2.0, 2.0, exchange=1.0, data=3.0), "6000 ms, and 3000 ms were predicted: rank 0 (host a) waits 3000 ms"),
        (loads(0.5, 0.5, exchange=1.0), "1500 ms, and 3000 ms were predicted: rank 0 (host a) computes 500 ms, not"),
    ],
)
def test_what_differs_is_named(tmp_path: Path, seen: list[RankLoad], reason: str) -> None:
    (_, line) = told(drift(tmp_path), seen, seen, seen)
    assert line.startswith(f"Drift: an iteration takes {reason}")
    assert line.endswith("at the current speeds no plan is known to be faster")


def test_stages_wait_for_each_other(tmp_path: Path) -> None:
    """Two stages, of which conv's has twice the work: 6 of 12 units by 8 samples at 2 a second are 2 s."""
    made = drift(tmp_path, "num_stages: 2 pipeline_param { micro_batches: 2 }").predicted((8,))
    assert made is not None
    assert [each.computing for each in made] == pytest.approx([2.0, 2.0])
    assert all(each.pipeline > 1.0 and each.exchange < 0.1 for each in made)
