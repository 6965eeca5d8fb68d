"""A resource that serves one after the other."""

from __future__ import annotations

from bpt.schedule.outer.simulation.fifo import Fifo


def test_one_after_the_other() -> None:
    link = Fifo()
    assert link.serve(1, 2) == 1  # at once
    assert link.serve(2, 2) == 3  # behind the first
    assert link.serve(2, 1) == 5
    assert link.serve(10, 1) == 10  # it was free by then
    assert (link.free, link.busy) == (11, 6)
