"""Seconds of passes, of what nodes submit."""

from __future__ import annotations

from bpt.parallel.outer.quantities import NodePassTimes


def test_several_submissions_a_pass_and_several_passes_a_submission() -> None:
    """Node 0 takes 2 s and 2 s for halves, then 9 s for one and a half; node 1 comes late."""
    times = NodePassTimes(2)
    times.add(0, 0.5, 2.0)
    times.add(0, 1.0, 2.0)
    times.add(1, 2.0, 5.0, missed=1)
    times.add(0, 2.5, 9.0)
    assert times.durations == [[4.0, None], [6.0, 5.0], [3.0, None]]


def test_a_node_that_did_less_of_its_last_pass_does_not_wait() -> None:
    times = NodePassTimes(3)
    for node, passes, seconds in ((0, 1.3, 13.0), (1, 0.6, 6.0), (2, 1.0, 11.0)):
        times.add(node, passes, seconds)
    assert [[time and round(time, 6) for time in row] for row in times.durations] == [[10, None, 11], [3, None, None]]
    assert NodePassTimes(2).durations == []
