"""balance: DYNAMIC on ranks that are threads: shares follow the speeds that events tell, and the curve stays."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from bpt.engine.instructions import Forward
from bpt.parallel.balance import dynamic_balancer as following
from bpt.system.device.memory_use import Memory
from bpt.system.events.event import Event
from bpt.train.solver.solver import Solver
from tests.support.spread_runs import assert_same_lines, read_model, read_state, remove_snapshots, train

DYNAMIC = "parallel_param { balance: DYNAMIC }"
LONG = "max_iter: 24 display: 2 iter_size: 1 test_interval: 8"
Speed = Callable[[int, int], float]
"""Seconds that a rank takes for a sample, from the iteration on."""


@pytest.fixture(autouse=True)
def own_clock(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "SECONDS", 0.0)  # the clock of these ranks is told, and not the machine's


def taking(seconds: Speed, seen: dict[int, list[int]]) -> Callable[[Solver], None]:
    """Has each rank tell that it computes for so long, beside which the real time is nothing; notes its shares."""

    def each(solver: Solver) -> None:
        rank = solver.runtime.world.rank
        numbers = seen.setdefault(rank, [])

        def tell(loss: object) -> None:
            count = solver.runtime.parallel.batches.context(0).split(6).count
            numbers.append(count)
            took = 1000 * seconds(rank, solver.iter) * count
            solver.runtime.events.emit(Event(Forward(0), 0.0, took))

        solver.runtime.updater.on_loss.append(tell)

    return each


@pytest.mark.parametrize(
    "overrides",
    [
        "parallel_param { exchange: CGDP cgdp_param { chunk_size: 1 } }",
        "parallel_param { num_shards: 2 }",
        "parallel_param { num_stages: 2 pipeline_param { micro_batches: 2 } }",
    ],
)
def test_shares_follow_and_the_curve_stays(overrides: str) -> None:
    """Ranks 2 and 3 are five times as fast; from iteration 12 on it is ranks 0 and 1."""
    train_alone = train(1, LONG)
    expected, weights = train_alone.lines, read_model(24)
    remove_snapshots()
    seen: dict[int, list[int]] = {}

    def seconds(rank: int, iteration: int) -> float:
        return 1.0 if (rank < 2) == (iteration < 12) else 0.2

    # Micro-batches are normalised by themselves otherwise.
    whole = "parallel_param { pipeline_param { batch_norm_over: BATCH } }" if "num_stages" in overrides else ""
    run = train(4, LONG, DYNAMIC, overrides, whole, each=taking(seconds, seen))
    assert_same_lines(run.lines, expected)
    for name, values in read_model(24).items():
        np.testing.assert_allclose(values, weights[name], rtol=0, atol=1e-4 * np.abs(values).max(), err_msg=name)
    whole_batch = 6 if "num_stages" not in overrides else 12  # two stages have the same samples
    assert all(sum(counts) == whole_batch for counts in zip(*seen.values(), strict=True))
    assert seen[3][11] > seen[0][11]
    assert seen[0][-1] > seen[3][-1]
    assert sum(line.startswith("Balance: from iteration") for line in run.log) >= 2


def test_what_is_told_and_kept() -> None:
    """1 and 5 seconds a sample. The snapshot holds the shares, and who goes on begins with them."""
    seen: dict[int, list[int]] = {}
    each = taking(lambda rank, iteration: 5.0 if rank else 1.0, seen)
    run = train(2, "max_iter: 9", DYNAMIC, each=each)
    assert [line for line in run.log if "anew" in line] == [
        "Balance: from iteration 5 on samples are divided anew: 3 → 5, 3 → 1. The slowest took 1.5e+07 ms for its "
        "share, 5e+06 ms are expected"
    ]
    assert seen[0] == [3] * 5 + [5] * 4
    assert list(read_state(9).shares) == [5, 1]
    again: dict[int, list[int]] = {}
    each = taking(lambda rank, iteration: 5.0 if rank else 1.0, again)
    train(2, "max_iter: 12", DYNAMIC, resume="small_iter_9.solverstate", each=each)
    assert again[0] == [5] * 3


def test_it_waits_until_it_has_seen_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "SECONDS", 1e9)
    seen: dict[int, list[int]] = {}
    train(2, "max_iter: 16", DYNAMIC, each=taking(lambda rank, iteration: 5.0 if rank else 1.0, seen))
    assert seen[0] == [3] * (following.WARM_UP + following.LONGEST) + [5] * 3


def test_a_share_is_not_enlarged_beyond_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Memory, "room", property(lambda self: 0))
    seen: dict[int, list[int]] = {}
    train(2, DYNAMIC, each=taking(lambda rank, iteration: 5.0 if rank else 1.0, seen))
    assert set(seen[0]) == {3}
