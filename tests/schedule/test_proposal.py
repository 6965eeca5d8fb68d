"""Proposed cuts against all cuts there are, and against the paper's rule."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from itertools import combinations, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bpt.schedule.chunks import chunks
from bpt.schedule.cost_model import Costs, LayerCost, serial_backward_time
from bpt.schedule.proposal import candidates, propose
from tests.schedule.made_costs import THREE, costs
from tests.schedule.paper import alexnet

Cut = tuple[int, ...]


def every_cut(layers: int) -> Iterator[Cut]:
    for number in range(layers):
        for places in combinations(range(1, layers), number):
            starts = (0, *places, layers)
            yield tuple(end - start for start, end in pairwise(starts))


def best_of_the_rule(made: Costs) -> float:
    layers = len(made.layers)
    return min(serial_backward_time(made, chunks(layers, size)) for size in range(1, layers + 2))


def random_costs(rng: random.Random, layers: int) -> Costs:
    """Layers from no exchange to as much as half of backward in every queue."""

    def layer() -> LayerCost:
        size = rng.expovariate(1) * rng.choice([0.1, 1, 2])
        d2h, accumulate, bc = (size * rng.uniform(0.2, 0.5) for _ in range(3))
        return LayerCost("", 1, rng.uniform(0.5, 1.5), d2h, accumulate, bc)

    return Costs(tuple(layer() for _ in range(layers)), rng.choice([0.01, 0.1, 0.5, 1.0]))


def test_by_hand() -> None:
    """Times of all four cuts: 9.75, 12.75, and for (1, 2): computed 2.5 and 8, D2H 5.5 and 9.5, host 10.75, H2D 12."""
    assert serial_backward_time(THREE, (1, 2)) == 12
    assert propose(THREE) == (1, 1, 1)
    dear = THREE.scaled(synchronisation=20)  # 10 s a chunk: 3 chunks take 37 + 1, 2 at least 27 + 1, 1 takes 17 + 10
    assert propose(dear) == (3,)


def test_best_of_all_cuts() -> None:
    """The dynamic programme may miss the least time; here it does so for none of 150 nets."""
    rng = random.Random(1)
    for _ in range(150):
        made = random_costs(rng, rng.randint(1, 8))
        times = {cut: serial_backward_time(made, cut) for cut in every_cut(len(made.layers))}
        assert times[propose(made)] == pytest.approx(min(times.values()), rel=1e-9)


@pytest.mark.parametrize(
    ("rows", "per_chunk", "cut", "seconds"),
    [
        # Cuts that differ in queues but the last one: the others decide.
        ([(0, 2, 3, 3), (1, 2, 0, 0), (3, 3, 1, 1), (3, 1, 3, 2), (3, 0, 0, 0)], 1.0, (2, 1, 1, 1), 16.0),
        # With 1 to 5 chunks 36.5, 23, 23, 21.5 and 22: one chunk more may gain nothing, and two more a lot.
        ([(2, 2, 3, 1), (1, 0, 2, 3), (2, 0, 2, 1), (4, 3, 2, 0), (1, 1, 3, 3)], 0.5, (1, 2, 1, 1), 21.5),
    ],
)
def test_hard_examples(rows: list[tuple[float, ...]], per_chunk: float, cut: Cut, seconds: float) -> None:
    made = Costs(tuple(LayerCost("", 1, *row) for row in rows), per_chunk)
    assert min(serial_backward_time(made, other) for other in every_cut(5)) == seconds < best_of_the_rule(made)
    assert propose(made) == cut
    assert serial_backward_time(made, cut) == seconds


def test_unequal_chunks_beat_the_rule() -> None:
    """Equal layers: as much exchange as backward, so chunks must shrink towards the end."""
    made = Costs(tuple(LayerCost("", 1, 1.0, 0.3, 0.3, 0.3) for _ in range(32)), per_chunk=0.3)
    proposal = propose(made)
    assert serial_backward_time(made, proposal) < 0.98 * best_of_the_rule(made)
    assert list(proposal) == sorted(proposal, reverse=True)


@settings(deadline=None, max_examples=50)
@given(costs(most=12))
def test_never_worse_than_the_rule(made: Costs) -> None:
    proposal = propose(made)
    assert sum(proposal) == len(made.layers)
    assert min(proposal) >= 1
    assert serial_backward_time(made, proposal) <= best_of_the_rule(made) * (1 + 1e-9)


def test_fewer_chunks_where_times_are_equal() -> None:
    """Synchronisation is free, and backward of the last layer hides everything else."""
    layers = (*(LayerCost("", 1, 1.0, 0.1, 0.1, 0.1) for _ in range(5)), LayerCost("", 1, 100.0, 0.1, 0.1, 0.1))
    assert propose(Costs(layers)) == (5, 1)


def test_nothing_to_exchange_is_one_chunk() -> None:
    assert propose(Costs(())) == ()
    assert candidates(Costs(()), 3) == [()]
    assert propose(Costs(tuple(LayerCost("", 0, 1.0, 0, 0, 0) for _ in range(4)), per_chunk=0.1)) == (4,)


def test_deep_nets_are_quick() -> None:
    made = random_costs(random.Random(2), 320)
    start = time.process_time()
    proposal = propose(made)
    assert time.process_time() - start < 3  # takes about 0.15 s; all cuts of 320 layers would take ages
    assert serial_backward_time(made, proposal) < best_of_the_rule(made)


@settings(deadline=None, max_examples=50)
@given(costs(), st.integers(1, 12))
def test_candidates_differ(made: Costs, count: int) -> None:
    found = candidates(made, count)
    assert found[0] == propose(made)
    assert len(found) == len(set(found)) <= count
    assert all(sum(cut) == len(made.layers) for cut in found)
    different = {chunks(len(made.layers), size) for size in range(1, len(made.layers) + 2)}
    assert len(found) >= min(count, len(different))
    if len(found) < count:
        assert different <= set(found)


def test_candidates_of_alexnet() -> None:
    """Fc6 and what follows hide well, so the model saves synchronisations of 0.9 ms each."""
    made = alexnet()
    proposal, rule, fewer, *_ = candidates(made, 4)
    assert serial_backward_time(made, proposal) < serial_backward_time(made, (1,) * 8)
    assert rule == min((chunks(8, size) for size in range(1, 10)), key=lambda cut: serial_backward_time(made, cut))
    assert len(fewer) == len(proposal) // 2
