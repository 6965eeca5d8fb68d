"""What each rank trains with, and how its gradient counts, on data whose sums are worked out by hand."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from torch import Tensor

from bpt.nn.layers.prefetching import PrefetchingDataLayer
from bpt.train.solver.solver import Solver
from tests.support.spread_runs import write_speeds
from tests.train.runtime.summed_data import set_up, steps

STATIC = 'balance: STATIC balance_param { profile: "speed.json" }'
UNWEIGHTED = 'balance: STATIC balance_param { profile: "speed.json" normalizer: UNIFORM }'


class Seen:
    """The first column of the rows that each rank's data layer has handed out, pass by pass."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.by_rank: dict[int, list[list[float]]] = {}
        forward = PrefetchingDataLayer.forward

        def spy(layer: PrefetchingDataLayer, *bottoms: Tensor) -> object:
            tops = forward(layer, *bottoms)
            rank = int(threading.current_thread().name.removeprefix("rank "))
            self.by_rank.setdefault(rank, []).append(tops[0].flatten().tolist())
            return tops

        monkeypatch.setattr(PrefetchingDataLayer, "forward", spy)


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Seen:
    return Seen(monkeypatch)


@pytest.mark.parametrize(
    ("ranks", "parallel"),
    [(2, ""), (3, ""), (4, "num_shards: 2"), (3, STATIC), (2, "batch_scope: REPLICA"), (3, "exchange: TREE")],
)
@pytest.mark.parametrize("shuffle", ["", "shuffle: true"])
def test_over_the_epochs_each_rank_has_every_sample(
    ranks: int, parallel: str, shuffle: str, summed: Path, seen: Seen
) -> None:
    """12 samples in batches of 6: without turning, each rank would have the same ones for ever."""
    set_up(summed, [float(i) for i in range(12)], 6, more=shuffle)
    if STATIC in parallel:
        write_speeds(1, 2, 1)
    seen.by_rank.clear()
    epochs = 30 if shuffle else 12  # an order that is drawn anew does not make sure of it; it is only likely
    per_epoch = 1 if "REPLICA" in parallel else 2
    steps(ranks, epochs * per_epoch, f"base_lr: 1e-6 parallel_param {{ {parallel} }}")
    for epoch in range(epochs):
        passes = range(epoch * per_epoch, (epoch + 1) * per_epoch)
        had = [row for rank in range(ranks) for number in passes for row in seen.by_rank[rank][number]]
        assert sorted(had) == list(range(12))  # none twice, none left out
    for rank in range(ranks):
        assert {row for batch in seen.by_rank[rank] for row in batch} == set(range(12))


def test_masters_have_the_samples(summed: Path, seen: Seen) -> None:
    set_up(summed, [1.0, 2.0, 3.0, 4.0], 4)
    steps(4, 1, "parallel_param { num_shards: 2 fc_param { scheme: MASTER_SLAVE } }")
    assert seen.by_rank == {0: [[1, 2]], 2: [[3, 4]]}


def test_passes_of_an_iteration_go_on_in_the_data(summed: Path, seen: Seen) -> None:
    set_up(summed, [float(i) for i in range(8)], 4)
    steps(2, 1, "iter_size: 2")
    assert seen.by_rank == {0: [[0, 1], [4, 5]], 1: [[2, 3], [6, 7]]}


def result(solver: Solver) -> tuple[float, float]:
    """The weight, and the loss shown."""
    (weight,) = solver.net.parameters()
    return weight.item(), solver.runtime.updater.losses.value


def test_a_gradient_counts_by_its_share(summed: Path) -> None:
    """x = 1, 2, 3, 4; rank 0 has the first three."""
    set_up(summed, [1.0, 2.0, 3.0, 4.0], 4)
    write_speeds(1, 2)
    # (1 + 4 + 9 + 16) / 4 = 7.5, of which half is the loss; w = 1 - 0.125 · 7.5
    expected = (1 - 0.125 * 7.5, 3.75)
    assert steps(1, 1, look=result) == [expected]
    assert steps(2, 1, f"parallel_param {{ {STATIC} }}", look=result) == [expected] * 2


def test_unweighted_means(summed: Path) -> None:
    """StaticLB: g = 1/P Σ g_p, whatever the shares."""
    set_up(summed, [1.0, 2.0, 3.0, 4.0], 4)
    write_speeds(1, 2)
    # g_0 = (1 + 4 + 9) / 3, g_1 = 16; the loss is half of each.
    gradient = ((1 + 4 + 9) / 3 + 16) / 2
    found = steps(2, 1, f"parallel_param {{ {UNWEIGHTED} }}", look=result)
    assert found[0] == found[1]
    assert found[0] == (pytest.approx(1 - 0.125 * gradient, rel=1e-6), pytest.approx(gradient / 2, rel=1e-6))


def test_unweighted_means_of_even_shares_are_weighted(summed: Path) -> None:
    set_up(summed, [1.0, 2.0, 3.0, 4.0], 4)
    even = steps(2, 1, "parallel_param { balance_param { normalizer: UNIFORM } }", look=result)
    assert even == [(1 - 0.125 * 7.5, 3.75)] * 2


def test_unweighted_a_rank_without_samples_counts_as_zero(summed: Path) -> None:
    """P is the number of all ranks."""
    set_up(summed, [1.0, 3.0], 2)
    unweighted = "parallel_param { balance_param { normalizer: UNIFORM } }"
    # g = (1 + 9 + 0) / 3
    for found in steps(3, 1, unweighted, look=result):
        assert found == (pytest.approx(1 - 0.125 * 10 / 3, rel=1e-6), pytest.approx(5 / 3, rel=1e-6))


def test_unweighted_passes_of_an_iteration(summed: Path) -> None:
    """iter_size 2: the mean of (5 / 2 · …) over two batches, x = 1, 2 and 3, 4, a sample a rank: even shares."""
    set_up(summed, [1.0, 2.0, 3.0, 4.0], 2)
    found = steps(2, 1, "iter_size: 2 parallel_param { balance_param { normalizer: UNIFORM } }", look=result)
    assert found == [(1 - 0.125 * 7.5, 3.75)] * 2  # ((1 + 4) / 2 + (9 + 16) / 2) / 2


def test_tests_are_never_unweighted(summed: Path) -> None:
    set_up(summed, [1.0, 2.0, 3.0, 4.0], 4)
    write_speeds(1, 2)

    def look(solver: Solver) -> float:
        _, operator, outputs = solver.runtime.nets.tests[0]
        operator.forward(0, grad=False)
        return outputs.total(operator.loss().item())

    tested = "test_iter: 1 test_interval: 100 test_initialization: false base_lr: 0"
    assert steps(2, 1, tested, f"parallel_param {{ {UNWEIGHTED} }}", look=look) == [3.75] * 2


def test_labels_go_with_their_data(summed: Path) -> None:
    """y = x - 1: each sample's gradient is x, whichever rank has it, turned or not."""
    data = [float(i) for i in range(1, 7)]
    set_up(summed, data, 4, labels=[x - 1 for x in data], more="shuffle: true")
    expected = steps(1, 7, "base_lr: 0.01", look=result)[0]
    for found in steps(3, 7, "base_lr: 0.01", look=result):
        assert found == (pytest.approx(expected[0], rel=1e-5), pytest.approx(expected[1], rel=1e-5))
