"""AllocatedSampler: the stream of a node that has some of the samples."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bpt.data.assigned_samples import AllocatedSampler
from bpt.data.sample_partition import Run
from bpt.data.sampler import Sampler


def made(sampler: Sampler, *runs: Run) -> AllocatedSampler:
    allocated = AllocatedSampler(sampler)
    allocated.allocate(0, runs)
    return allocated


def drawn(allocated: AllocatedSampler, position: int, count: int) -> list[tuple[int, int]]:
    """(epoch, sample) of each."""
    draw = allocated.indices(position, count)
    return list(zip(draw.epochs.tolist(), draw.samples.tolist(), strict=True))


def order(sampler: Sampler, epoch: int) -> list[int]:
    """An epoch's order, by the stream of all samples."""
    samples: list[int] = sampler.indices(epoch * sampler.size - sampler.skip, sampler.size).samples.tolist()
    return samples


@pytest.mark.parametrize("files", [[11], [4, 3, 5]])
@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("skip", [0, 4, 30])
def test_with_all_samples_the_stream_is_the_samplers(files: list[int], shuffle: bool, skip: int) -> None:
    sampler = Sampler(files, shuffle=shuffle, seed=3, skip=skip)
    size = sampler.size
    allocated = made(sampler, (5, size), (0, 5))
    whole = sampler.indices(0, 4 * size)
    for position, count in ((0, 7), (7, size), (7 + size, 2 * size + 3), (2, 1), (3, 0)):
        draw = allocated.indices(position, count)
        np.testing.assert_array_equal(draw.samples, whole.samples[position : position + count])
        np.testing.assert_array_equal(draw.epochs, whole.epochs[position : position + count])
    assert allocated.size == allocated.count == size


def test_passes_in_order_round_and_round() -> None:
    allocated = made(Sampler([10]), (7, 9), (2, 4))
    assert drawn(allocated, 0, 9) == [(0, 2), (0, 3), (0, 7), (0, 8), (1, 2), (1, 3), (1, 7), (1, 8), (2, 2)]
    assert [allocated.pass_end(position) for position in range(9)] == [4] * 4 + [8] * 4 + [12]
    assert [allocated.passes(position) for position in (0, 1, 4, 11)] == [0, Fraction(1, 4), 1, Fraction(11, 4)]


def test_a_pass_has_the_epochs_order() -> None:
    sampler = Sampler([5, 6], shuffle=True, seed=1)
    mine = set(order(sampler, 0)[3:6]) | set(order(sampler, 0)[9:11])
    expected = [(epoch, sample) for epoch in range(4) for sample in order(sampler, epoch) if sample in mine]
    assert drawn(made(sampler, (9, 11), (3, 6)), 0, 20) == expected


def test_more_samples_at_the_end_of_a_pass() -> None:
    allocated = made(Sampler([10]), (0, 3))
    allocated.allocate(3, [(8, 10)])
    assert drawn(allocated, 3, 6) == [(1, 0), (1, 1), (1, 2), (1, 8), (1, 9), (2, 0)]
    assert (allocated.passes(3), allocated.pass_end(3), allocated.count) == (1, 8, 5)


def test_more_samples_a_bit_behind_the_end_of_a_pass() -> None:
    """Batches of 4 have taken samples 5, 6 and 7 of the second pass: it goes on with 1, 2 and 8."""
    allocated = made(Sampler([10]), (5, 9))
    allocated.allocate(7, [(1, 3)])
    assert drawn(allocated, 7, 5) == [(1, 1), (1, 2), (1, 8), (2, 1), (2, 2)]
    assert (allocated.passes(7), allocated.pass_end(7), allocated.passes(10)) == (Fraction(3, 2), 10, 2)


def test_samples_come_and_come_within_one_pass() -> None:
    allocated = made(Sampler([10]), (4, 6))
    allocated.allocate(1, [(2, 3)])  # 4 has been drawn
    assert drawn(allocated, 1, 1) == [(0, 2)]
    allocated.allocate(2, [(0, 1), (9, 10)])
    assert drawn(allocated, 2, 4) == [(0, 0), (0, 5), (0, 9), (1, 0)]


def test_samples_that_go_at_the_end_of_a_pass() -> None:
    allocated = made(Sampler([10]), (0, 5))
    allocated.release(5, [(1, 3), (4, 5)])
    assert drawn(allocated, 5, 4) == [(1, 0), (1, 3), (2, 0), (2, 3)]
    assert (allocated.passes(5), allocated.pass_end(5), allocated.count) == (1, 7, 2)


def test_samples_that_go_a_bit_behind_the_end_of_a_pass() -> None:
    """Batches of 4 have taken samples 5, 6 and 7 of the second pass; 6 and 7 go, and of the two left it has had 5."""
    allocated = made(Sampler([10]), (5, 9))
    allocated.release(7, [(6, 8)])
    assert drawn(allocated, 7, 3) == [(1, 8), (2, 5), (2, 8)]
    assert (allocated.passes(7), allocated.passes(8)) == (Fraction(3, 2), 2)
    allocated.allocate(7, [(0, 2)])  # in the same order
    assert drawn(allocated, 7, 4) == [(1, 0), (1, 1), (1, 8), (2, 0)]


def test_what_it_has_not_cannot_go() -> None:
    allocated = made(Sampler([10]), (5, 9))
    with pytest.raises(AssertionError, match="are not all allocated"):
        allocated.release(4, [(4, 6)])


def test_nothing_added_changes_nothing() -> None:
    allocated = made(Sampler([10], shuffle=True), (0, 4))
    before = drawn(allocated, 0, 12)
    allocated.allocate(6, [])
    assert drawn(allocated, 0, 12) == before


def test_fewer_samples_than_a_batch() -> None:
    allocated = made(Sampler([10]), (4, 6))
    assert [sample for _, sample in drawn(allocated, 0, 7)] == [4, 5, 4, 5, 4, 5, 4]
    assert (allocated.passes(7), allocated.pass_end(7)) == (Fraction(7, 2), 8)
    allocated.allocate(7, [(0, 2)])
    assert drawn(allocated, 7, 4) == [(3, 0), (3, 1), (3, 5), (4, 0)]


def test_no_samples() -> None:
    allocated = made(Sampler([10]))
    assert (allocated.count, allocated.passes(0), allocated.pass_end(0), drawn(allocated, 0, 0)) == (0, 0, 0, [])
    with pytest.raises(AssertionError):
        allocated.indices(0, 1)


def test_what_is_skipped_is_left_out_of_the_first_pass() -> None:
    allocated = made(Sampler([10], skip=13), (1, 6))  # starts in epoch 1, with sample 3
    assert drawn(allocated, 0, 5) == [(1, 3), (1, 4), (1, 5), (2, 1), (2, 2)]
    assert (allocated.passes(0), allocated.pass_end(0), allocated.passes(3)) == (Fraction(2, 5), 3, 1)
    allocated.allocate(0, [(0, 1), (9, 10)])
    assert drawn(allocated, 0, 6) == [(1, 3), (1, 4), (1, 5), (1, 9), (2, 0), (2, 1)]


def test_a_first_pass_that_is_skipped() -> None:
    allocated = made(Sampler([10], skip=8), (1, 3))
    assert drawn(allocated, 0, 3) == [(1, 1), (1, 2), (2, 1)]
    assert (allocated.passes(0), allocated.pass_end(0)) == (1, 2)


def test_a_node_that_joins_later() -> None:
    allocated = AllocatedSampler(Sampler([10], skip=13))
    allocated.allocate(0, [])
    allocated.allocate(0, [(1, 4)], begun=2)
    assert drawn(allocated, 0, 4) == [(3, 1), (3, 2), (3, 3), (4, 1)]
    assert (allocated.passes(0), allocated.passes(3)) == (2, 3)


def test_the_first_allocation_holds_from_the_start() -> None:
    allocated = AllocatedSampler(Sampler([10]))
    allocated.allocate(7, [(1, 4)])
    assert drawn(allocated, 7, 3) == [(2, 2), (2, 3), (3, 1)]


@pytest.mark.parametrize("runs", [[(3, 3)], [(9, 11)], [(2, 4)], [(4, 6), (5, 7)]])
def test_runs_that_cannot_be(runs: list[Run]) -> None:
    with pytest.raises(AssertionError):
        made(Sampler([10]), (0, 3)).allocate(3, runs)


def test_what_stands_before_an_allocation_cannot_be_drawn() -> None:
    allocated = made(Sampler([10]), (0, 3))
    allocated.allocate(4, [(3, 4)])
    with pytest.raises(AssertionError):
        allocated.indices(3, 1)


class Plain:
    """The same stream, sample after sample."""

    def __init__(self, sampler: Sampler) -> None:
        self.sampler = sampler
        self.mine: set[int] = set()
        self.left: list[int] = []  # of the pass under way, in its order
        self.epoch = -1
        self.position = 0

    def allocate(self, run: Run) -> None:
        more = set(order(self.sampler, 0)[slice(*run)])
        self.mine |= more
        if self.left:
            more |= set(self.left)
            self.left = [sample for sample in order(self.sampler, self.epoch) if sample in more]

    def next(self) -> tuple[int, int]:
        if not self.left:
            self.epoch += 1
            self.left = [sample for sample in order(self.sampler, self.epoch) if sample in self.mine]
        self.position += 1
        return self.epoch, self.left.pop(0)

    @property
    def passes(self) -> Fraction:
        return self.epoch + 1 - Fraction(len(self.left), len(self.mine))


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_each_pass_has_each_sample_once(data: st.DataObject) -> None:
    """Whatever is allocated when."""
    files = data.draw(st.lists(st.integers(1, 6), min_size=1, max_size=3))
    sampler = Sampler(files, shuffle=data.draw(st.booleans()), seed=2)
    cuts = sorted(data.draw(st.sets(st.integers(1, sampler.size), min_size=1)))
    allocated, plain = AllocatedSampler(sampler), Plain(sampler)
    for run in zip([0, *cuts], cuts, strict=False):
        allocated.allocate(plain.position, [run])
        plain.allocate(run)
        at = plain.position
        steps = data.draw(st.integers(0, 12))
        assert drawn(allocated, at, steps) == [plain.next() for _ in range(steps)]
        assert allocated.passes(plain.position) == plain.passes
        assert allocated.pass_end(plain.position) == plain.position + (len(plain.left) or len(plain.mine))
