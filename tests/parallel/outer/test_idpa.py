from __future__ import annotations

import itertools
from collections.abc import Collection
from dataclasses import dataclass
from fractions import Fraction
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bpt.base.errors import RunError
from bpt.data.sample_partition import Allocation
from bpt.data.sampler import Sampler
from bpt.parallel.outer.idpa import DivisionRule, Idpa, Udpa, total_iterations, work


def test_four_batches_worked_by_hand() -> None:
    """58 samples in batches of 14, the last with 2 more; the nodes turn out to be as fast as their frequencies say."""
    idpa = Idpa(58, nodes=3, batches=4)
    assert (idpa.batch, idpa.done, idpa.allocated.counts) == (0, False, (0, 0, 0))
    assert idpa.first([4.0e9, 2.0e9, 1.0e9]).runs == (((0, 8),), ((8, 12),), ((12, 14),))
    # 14 · 2 of which n' = 16, 8, 4.
    assert idpa.next([1.0, 2.0, 4.0]).runs == (((14, 22),), ((22, 26),), ((26, 28),))
    assert (idpa.batch, idpa.done, idpa.allocated.counts) == (2, False, (16, 8, 4))
    # The first is now as slow as the last: T = 42 / (1/4 + 1/2 + 1/4) = 42 s, n' = 10.5, 21, 10.5. It has more than
    # that: 26 / (1/2 + 1/4) = 34.67 s, n' = 17.33 and 8.67. It gets nothing.
    assert idpa.next([4.0, 2.0, 4.0]).runs == ((), ((28, 37),), ((37, 42),))
    assert idpa.allocated.counts == (16, 17, 9)
    # Fast again, and all of 58: T = 58 / 1.75 = 33.1, n' = 33.1, 16.6, 8.3. The others have more: n' = 58 - 17 - 9.
    assert idpa.next([1.0, 2.0, 4.0]).runs == (((42, 58),), (), ())
    assert (idpa.batch, idpa.done) == (4, True)
    assert idpa.allocated.runs == (
        ((0, 8), (14, 22), (42, 58)),
        ((8, 12), (22, 26), (28, 37)),
        ((12, 14), (26, 28), (37, 42)),
    )


@pytest.mark.parametrize("rule", list(DivisionRule))
def test_samples_that_stay_together(rule: DivisionRule) -> None:
    """58 batches of 3 are dealt out as 58 samples would be; so are those of a node that has left."""
    ones, threes = Idpa(58, 3, 4, rule), Idpa(174, 3, 4, rule, grain=3)
    steps = (
        lambda idpa: idpa.first([4.0e9, 2.0e9, 1.0e9]),
        lambda idpa: idpa.next([1.0, 2.0, 4.0]),
        lambda idpa: idpa.leave(1),
        lambda idpa: idpa.next([3.0, None, 4.0]),
        lambda idpa: idpa.next([1.0, None, 4.0]),
    )
    for step in steps:
        expected = tuple(tuple((3 * start, 3 * stop) for start, stop in runs) for runs in step(ones).runs)
        assert step(threes).runs == expected
    assert threes.done and sum(threes.allocated.counts) == 174
    assert Udpa(20, 3, grain=5).first([None] * 3).counts == (10, 5, 5)


def test_first_batch_by_the_paper() -> None:
    """Alg. 3.1, line 3: ⌊10 · 2 / 6.5⌋ = 3, ⌊4.6⌋ = 4, the last gets 3. By largest remainders 3, 5 and 2."""
    assert Idpa(20, 3, 2, DivisionRule.PAPER).first([2.0, 3.0, 1.5]).counts == (3, 4, 3)
    assert Idpa(20, 3, 2).first([2.0, 3.0, 1.5]).counts == (3, 5, 2)


def test_the_paper_starves_the_last_node() -> None:
    """All look alike and get 10 of 30. But times are 1, 2, 4: t̄ = 7/3, and by Eq. 3 T = 30 · a · 7/9.

    a = 2: n' = 46, so 36 of 30 new ones to the first. a = 3: n' = 70 and 35, so 30 more for the first. By Eq. 5 the
    last would get -6 in batch 2. HARMONIC gives 4/7, 2/7 and 1/7 in the end.
    """
    paper, better = Idpa(120, 3, 4, DivisionRule.PAPER), Idpa(120, 3, 4)
    for idpa in (paper, better):
        idpa.first([1.0, 1.0, 1.0])
    counts = [paper.next([1.0, 2.0, 4.0]).counts for _ in range(3)]
    assert counts == [(30, 0, 0), (30, 0, 0), (23, 7, 0)]  # a = 4: T = 93.3; 93 - 70, then 46 - 10 of 7
    while not better.done:
        better.next([1.0, 2.0, 4.0])
    assert paper.allocated.counts == (93, 17, 10)
    assert better.allocated.counts == (69, 34, 17)  # 68.57, 34.29, 17.14


def test_frequencies_that_cannot_be_read() -> None:
    assert Idpa(12, 3, 1).first([3.0, None, 1.0]).counts == (6, 4, 2)  # the mean is 2
    assert Idpa(12, 3, 1).first([None] * 3).counts == (4, 4, 4)
    assert Idpa(12, 3, 1, DivisionRule.PAPER).first([None] * 3).counts == (4, 4, 4)


def test_times_that_are_not_known() -> None:
    """Of who trained nothing the frequency counts, in the speed per unit that the others have; else its last time."""
    idpa = Idpa(36, nodes=3, batches=3)
    assert idpa.first([1.0, 1.0, 2.0]).counts == (3, 3, 6)
    # Speeds 1 and 3 at 2 units together; the third, at 2, would have 4: of 24 samples 3, 9 and 12.
    assert idpa.next([1.0, 1 / 3, None]).counts == (0, 6, 6)
    # Now it is measured, and the second not: speeds 1, 3, 2 of 36: 6, 18 and 12.
    assert idpa.next([1.0, None, 0.5]).counts == (3, 9, 0)


def test_slower_and_faster_nodes_are_followed() -> None:
    """The second node falls to a tenth of its speed after two of ten batches, and recovers after five."""
    idpa = Idpa(10_000, nodes=2, batches=10)
    idpa.first([1.0, 1.0])
    assert idpa.next([1.0, 1.0]).counts == (500, 500)
    slow = [idpa.next([1.0, 10.0]).counts for _ in range(3)]
    assert slow == [(1000, 0)] * 3  # T = 3000 / 1.1: 273 for the second, 364, 455; it has 1000
    # 3000 of 6000; it gets all new ones until it has as many as the first.
    fast = [idpa.next([1.0, 1.0]).counts for _ in range(5)]
    assert fast == [(0, 1000), (0, 1000), (0, 1000), (500, 500), (500, 500)]


def test_a_node_leaves() -> None:
    """Its 5 samples of 20 go to the others, who have 5 and 10, times 2 and 1: n' = 20/3 and 40/3."""
    idpa = Idpa(40, nodes=3, batches=2)
    assert idpa.first([1.0, 1.0, 2.0]).runs == (((0, 5),), ((5, 10),), ((10, 20),))
    assert idpa.leave(1).runs == (((5, 7),), (), ((7, 10),))
    assert idpa.present == (0, 2)
    assert idpa.allocated.runs == (((0, 7),), (), ((10, 20), (7, 10)))
    # Nothing is read of it: T = 40 / 2, 20 for each; the second batch has 20.
    assert idpa.next([1.0, 0.0, 1.0]).counts == (13, 0, 7)
    assert idpa.leave(0).runs == ((), (), ((0, 7), (20, 33)))
    assert idpa.done
    assert idpa.allocated.counts == (0, 0, 40)
    with pytest.raises(RunError, match="the last computing node has left; nobody can train the 40 samples"):
        idpa.leave(2)


def test_nodes_that_leave_together() -> None:
    """None gets samples of the other; one that leaves before the first batch gets none of it."""
    idpa = Idpa(12, nodes=4, batches=1)
    assert idpa.leave(3).counts == (0, 0, 0, 0)
    assert idpa.first([1.0] * 4).counts == (4, 4, 4, 0)
    assert idpa.leave(2, 0).runs == ((), ((0, 4), (8, 12)), (), ())
    assert idpa.allocated.runs == ((), ((4, 8), (0, 4), (8, 12)), (), ())


@pytest.mark.parametrize("rule", DivisionRule)
def test_one_node_gets_all(rule: DivisionRule) -> None:
    idpa = Idpa(10, nodes=1, batches=3, rule=rule)
    new = [idpa.first([2.0]), idpa.next([1.0]), idpa.next([9.0])]
    assert [allocation.runs for allocation in new] == [(((0, 3),),), (((3, 6),),), (((6, 10),),)]
    assert idpa.allocated.runs == (((0, 10),),)


def test_uniform() -> None:
    udpa = Udpa(10, nodes=3)
    assert udpa.first([9.0, None, 1.0]).runs == (((0, 4),), ((4, 7),), ((7, 10),))
    assert udpa.done
    udpa = Udpa(21, nodes=3, batches=2)
    assert udpa.first([9.0, 1.0, 1.0]).counts == (4, 3, 3)
    assert udpa.next([1.0, 2.0, 3.0]).counts == (3, 4, 4)
    assert udpa.leave(1).counts == (4, 0, 3)


@pytest.mark.parametrize(
    ("iterations", "batches", "total"),
    [(100, 4, 101), (100, 5, 102), (100, 1, 100), (10, 10, 14), (1, 1, 1), (5, 3, 6)],
)
def test_total_iterations(iterations: int, batches: int, total: int) -> None:
    """Eq. 6: 4 + ⌊100 - 2.5⌋, 5 + ⌊100 - 3⌋, ..., 10 + ⌊10 - 5.5⌋, ..., 3 + ⌊5 - 2⌋."""
    assert total_iterations(iterations, batches) == total
    # What that trains, of equal batches of one sample: 1 + 2 + … + A, and then A each time.
    trained = sum(range(batches + 1)) + (total - batches) * batches
    assert 0 <= iterations * batches - trained < batches


@pytest.mark.parametrize(
    ("passes", "trained"),
    # 1/4, 2/4, 3/4, and then whole passes
    [("0", "0"), ("1/2", "1/8"), ("1", "1/4"), ("5/2", "9/8"), ("3", "3/2"), ("4", "5/2"), ("9/2", "3"), ("6", "9/2")],
)
def test_how_often_samples_are_trained(passes: str, trained: str) -> None:
    """In four batches; in one, as often as there are passes."""
    assert work(Fraction(passes), 4) == Fraction(trained)
    assert work(Fraction(passes), 1) == Fraction(passes)


def test_runs_are_positions_of_a_samplers_order() -> None:
    idpa = Idpa(100, nodes=3, batches=4)
    idpa.first([1.0, 2.0, 3.0])
    while not idpa.done:
        idpa.next([3.0, 1.0, 2.0])
    order = Sampler([60, 40], shuffle=True, seed=5)
    drawn = [order.indices(start, stop - start) for runs in idpa.allocated.runs for start, stop in runs]
    np.testing.assert_array_equal(np.sort(np.concatenate([draw.samples for draw in drawn])), np.arange(100))


@dataclass
class History:
    """What happens to a cluster: ``times`` before each later batch, and who has left after which batch; not all do."""

    idpa: Idpa
    frequencies: list[float | None]
    times: list[list[float | None]]
    left: list[tuple[int, int]]


KINDS = (*DivisionRule, None)  # None: uniform


def made(kind: DivisionRule | None, samples: int, nodes: int, batches: int) -> Idpa:
    return Udpa(samples, nodes, batches) if kind is None else Idpa(samples, nodes, batches, kind)


@st.composite
def histories(draw: st.DrawFn) -> History:
    nodes, batches = draw(st.integers(1, 8)), draw(st.integers(1, 5))
    idpa = made(draw(st.sampled_from(KINDS)), draw(st.integers(batches, 2000)), nodes, batches)
    row = st.lists(st.none() | st.floats(1e-4, 1e2), min_size=nodes, max_size=nodes)
    leaving = draw(st.lists(st.integers(0, nodes - 1), max_size=nodes - 1, unique=True))
    left = [(draw(st.integers(0, batches)), node) for node in leaving]
    return History(idpa, draw(row), [draw(row) for _ in range(batches - 1)], left)


def random_history(seed: int) -> History:
    random = Random(seed)
    nodes, batches = random.randint(1, 8), random.randint(1, 5)
    samples = random.choice([batches, random.randint(batches, 60), random.randint(batches, 10**6)])
    idpa = made(KINDS[seed % len(KINDS)], samples, nodes, batches)
    rows = [
        [None if random.random() < 0.1 else 10 ** random.uniform(-4, 2) for _ in range(nodes)] for _ in range(batches)
    ]
    leaving = random.sample(range(nodes), random.choice([0, random.randint(0, nodes - 1)]))
    return History(idpa, rows[0], rows[1:], [(random.randint(0, batches), node) for node in leaving])


def check(idpa: Idpa, before: Allocation, change: Allocation, gone: Collection[int]) -> None:
    """Every sample handed out so far is on exactly one node that is there; nothing was taken from those who stay."""
    so_far = idpa.samples if idpa.done else idpa.samples // idpa.batches * idpa.batch
    runs = sorted(run for runs in idpa.allocated.runs for run in runs)
    assert all(start < stop for start, stop in runs)
    assert [0, *(stop for _, stop in runs)] == [*(start for start, _ in runs), so_far]
    assert sum(idpa.allocated.counts) == so_far
    assert all(idpa.allocated.counts[node] == 0 for node in gone)
    assert all(count >= 0 for count in change.counts)
    assert before.without(gone).plus(change) == idpa.allocated


def play(history: History) -> None:
    """Check conservation after every step."""
    idpa = history.idpa
    gone: list[int] = []
    for batch in range(idpa.batches + 1):
        if batch:
            before = idpa.allocated
            change = idpa.first(history.frequencies) if batch == 1 else idpa.next(history.times[batch - 2])
            check(idpa, before, change, gone)
        leaving = [node for when, node in history.left if when == batch]
        if leaving:
            gone += leaving
            before = idpa.allocated
            check(idpa, before, idpa.leave(*leaving), gone)
    assert idpa.done


@settings(max_examples=100, deadline=None, derandomize=True)
@given(histories())
def test_conservation(history: History) -> None:
    play(history)


def test_conservation_on_thousands_of_clusters() -> None:
    for seed in range(3000):
        play(random_history(seed))


def finish_together(times: list[float], frequencies: list[float], batches: int, samples: int) -> None:
    """Check that at last the times of any two nodes differ by at most one sample of the slower."""
    idpa = Idpa(samples, len(times), batches)
    idpa.first(frequencies)
    while not idpa.done:
        idpa.next(times)
    finish = [count * time for count, time in zip(idpa.allocated.counts, times, strict=True)]
    for (i, first), (j, second) in itertools.combinations(enumerate(finish), 2):
        assert abs(first - second) <= max(times[i], times[j]) + 1e-9 * max(finish)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.lists(st.floats(1e-4, 1e2), min_size=1, max_size=12), st.integers(1, 6), st.integers(6, 10**6))
def test_all_finish_together(times: list[float], batches: int, samples: int) -> None:
    finish_together(times, [1 / time for time in times], batches, samples)


def test_all_finish_together_in_thousands_of_clusters() -> None:
    """Frequencies may mislead, if by so little that no node gets more than its part of all data in the first batch."""
    for seed in range(3000):
        random = Random(seed)
        times = [10 ** random.uniform(-3, 1) for _ in range(random.randint(1, 12))]
        wrong = [random.uniform(1, 2) for _ in times]
        frequencies = [off / time for off, time in zip(wrong, times, strict=True)]
        finish_together(times, frequencies, batches=3, samples=random.randint(3, 10**6))
