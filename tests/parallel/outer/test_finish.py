"""Nodes that end together: arithmetic by hand, and whole runs on a virtual clock."""

from __future__ import annotations

from fractions import Fraction

import pytest

from bpt.parallel.outer.agwu import Agwu
from bpt.parallel.outer.asgd import Asgd
from bpt.parallel.outer.base import OuterSchedule
from bpt.parallel.outer.finish import Finish
from bpt.parallel.outer.idpa import Idpa
from bpt.parallel.outer.outer_instructions import Merge, SendOrder
from bpt.parallel.outer.quantities import NodePassTimes
from bpt.parallel.outer.replay import Replay
from tests.parallel.outer.play import Play


def test_by_hand() -> None:
    """At 10 s, node 0 has 100 samples left at 10 a second; at 12 s node 1 has 100 left at 5 a second.

    They end at T: 10 (T - 10) + 5 (T - 12) = 200, so T = 24; node 0 trains 140 samples and node 1 60.
    """
    finish = Finish()
    finish.note(0, 1.0, 1.0, 7.0)
    finish.note(0, 0.1, 10.0, 100.0)
    finish.note(1, 0.2, 12.0, 100.0)
    assert len(finish) == 2 and 0 in finish
    assert finish.samples(0) == pytest.approx(140)
    assert finish.samples(1) == pytest.approx(60)
    finish.settle(0, 140.0)
    assert 0 not in finish
    assert finish.samples(1) == pytest.approx(60)  # the rest, whatever its speed is now
    finish.note(1, 0.1, 20.0, 50.0)
    assert finish.samples(1) == pytest.approx(10)
    finish.forget(1)
    assert len(finish) == 0


@pytest.mark.parametrize("exchange", ["AGWU", "ASGD"])
def test_all_end_at_one_moment_though_speeds_change(exchange: str) -> None:
    """Node 1 slows down when all samples are handed out: with K' passes each, node 0 would idle for most of a pass."""

    def run(together: bool) -> Play:
        idpa = Idpa(1200, 2, 3)
        schedule: OuterSchedule
        if exchange == "AGWU":
            schedule = Agwu(idpa, Fraction(8), together=together)
        else:
            schedule = Asgd(idpa, Fraction(8), push=4, together=together)
        return Play(schedule, [10.0, 10.0], changes=[(180.0, 1, 9.0)], hints=True).run()

    alone, together = run(False), run(True)
    idle = [abs(play.players[0].ended - play.players[1].ended) for play in (alone, together)]
    assert idle[0] > 30 and idle[1] < 8  # s
    assert together.now < alone.now - 15
    trained = [sum(player.trained for player in play.players) for play in (alone, together)]
    assert trained[1] == pytest.approx(trained[0], abs=20)
    assert together.players[0].passes > 9 > together.players[1].passes  # K' = 9
    assert together.schedule.progress == 1
    if exchange == "AGWU":  # all submit equally often, as Eq. 11 has it
        merges = [each.update.worker for each in together.log if isinstance(each, Merge)]
        assert [merges.count(worker) for worker in (0, 1)] == [9, 9]


def test_a_replay_of_it_has_not_been_stopped() -> None:
    play = Play(Agwu(Idpa(1200, 2, 3), Fraction(8), together=True), [10.0, 10.0], changes=[(180.0, 1, 5.0)]).run()
    replay = Replay(play.log, 2, Fraction(9))
    assert not replay.short and not replay.stopped
    again = Play(replay, [10.0, 7.0]).run()
    sent = [[each for each in log if isinstance(each, SendOrder)] for log in (again.log, play.log)]
    assert sent[0] == sent[1]
    assert replay.progress == 1


def test_a_node_that_dies_is_not_waited_for() -> None:
    """The other takes its samples over, and ends."""
    schedule = Agwu(Idpa(1200, 2, 3), Fraction(8), together=True)
    play = Play(schedule, [10.0, 10.0], deaths={1: 300.0}, hints=True).run()
    assert play.players[0].stopped and play.players[1].dead
    assert schedule.progress == 1


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
