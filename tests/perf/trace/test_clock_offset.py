"""Clocks of ranks that are set by hand."""

from __future__ import annotations

import itertools

import pytest

from bpt.perf.trace.clock_offset import ROUNDS, Offset, answer, ask, to_first
from bpt.system.comm.base import Communicator
from tests.support.doubles.thread_ranks import run_ranks


def test_the_shortest_round_trip_counts() -> None:
    """The other clock is 100 s ahead. Round 3 takes 2 s, its message back as long as the one there; others take 4 s."""
    left = [10.0 * number for number in range(ROUNDS)]
    back = [at + (2.0 if number == 3 else 4.0) for number, at in enumerate(left)]
    here = itertools.chain.from_iterable(zip(left, back, strict=True))
    there = iter([at + 100.0 + (1.0 if number == 3 else 3.5) for number, at in enumerate(left)])

    def run(comm: Communicator) -> Offset | None:
        if comm.rank:
            answer(comm, lambda: next(there))
            return None
        return ask(comm, 1, lambda: next(here))

    assert run_ranks(2, run)[0] == Offset(at=131.0, seconds=100.0, error=1.0)


def test_the_error_bounds_what_a_slow_way_back_does() -> None:
    """All round trips take 4 s, of which the way there takes 3.5 s: the offset is wrong by 1.5 s, less than 2 s."""
    here = itertools.chain.from_iterable((10.0 * number, 10.0 * number + 4.0) for number in range(ROUNDS))
    there = iter([10.0 * number + 103.5 for number in range(ROUNDS)])

    def run(comm: Communicator) -> Offset | None:
        return answer(comm, lambda: next(there)) if comm.rank else ask(comm, 1, lambda: next(here))

    found = run_ranks(2, run)[0]
    assert found == Offset(at=103.5, seconds=101.5, error=2.0)


def test_between_two_offsets_a_clock_drifts_evenly() -> None:
    """It shows 100 s more at its 1000 s, and 102 s more at its 1200 s: a hundredth too fast."""
    offsets = [Offset(1000.0, 100.0, 0.1), Offset(1200.0, 102.0, 0.1)]
    times = [to_first(offsets, at) for at in (1000.0, 1050.0, 1200.0, 1300.0)]
    assert times == pytest.approx([900.0, 949.5, 1098.0, 1197.0])
    assert to_first(offsets[:1], 1200.0) == 1100.0
