"""The core of the virtual clocks, by hand."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from bpt.parallel.discrete_event import EventQueue, Process, Resource, SteppedProcess, run_all


def test_a_resource_serves_one_after_the_other() -> None:
    link = Resource()
    assert link.serve(1, 2) == 1  # at once
    assert link.serve(2, 2) == 3  # behind the first
    assert link.serve(2, 1) == 5
    assert link.serve(10, 1) == 10  # it was free by then
    assert (link.free, link.start(3), link.start(12)) == (11, 11, 12)


def test_a_resource_of_several_simulations_at_once() -> None:
    link = Resource(np.maximum)
    link.serve(np.array([1.0, 5.0]), 3.0)
    assert link.serve(np.array([6.0, 6.0]), np.array([1.0, 2.0])).tolist() == [6.0, 8.0]


def test_a_process_that_does_not_wait_for_what_has_passed() -> None:
    process = Process()
    process.work(2)
    process.wait_until(5)
    process.wait_until(4)
    process.work(1)
    assert (process.now, process.busy, process.waiting) == (6, 3, 3)


class Reader(SteppedProcess):
    """Posts numbers that are above 0, and reads those below."""

    def __init__(self, steps: Sequence[int], posts: set[int]) -> None:
        super().__init__(steps)
        self.posts = posts

    def do(self, step: int) -> bool:
        if step > 0:
            self.posts.add(step)
        return step > 0 or -step in self.posts


@pytest.mark.parametrize(
    ("streams", "steps"), [(([1, -2], [-1, 2]), [2, 2]), (([-2, 1], [-1, 2]), [0, 0]), (([1, -3], [-1, 2]), [1, 2])]
)
def test_processes_wait_for_each_other(streams: tuple[list[int], list[int]], steps: list[int]) -> None:
    posts: set[int] = set()
    readers = [Reader(stream, posts) for stream in streams]
    assert run_all(readers) == (steps == [2, 2])
    assert [reader.step for reader in readers] == steps


def test_events_happen_by_time_and_then_in_the_order_in_which_they_were_scheduled() -> None:
    events, seen = EventQueue(), []

    def note(name: str) -> None:
        seen.append((name, events.now))
        if name == "b":
            events.schedule(2.0, note, "d")

    for time, name in ((3.0, "a"), (2.0, "b"), (2.0, "c")):
        events.schedule(time, note, name)
    while len(events):
        events.advance()
    assert seen == [("b", 2.0), ("c", 2.0), ("d", 2.0), ("a", 3.0)]
    assert events.happened == 4
