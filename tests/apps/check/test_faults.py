"""Where ranks are to be killed, slow or out of reach: how it is written, what is refused, and what it does."""

from __future__ import annotations

import argparse
import signal
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from bpt.apps.check import faults
from bpt.apps.check.comparison import compare
from bpt.apps.check.faults import DroppedLink, Fault, Slow, drop_links
from bpt.base.errors import LostRankError, RunError, UsageError
from bpt.config.plan.resolve import read_plan
from bpt.config.plan.run_plan import FaultSpec
from bpt.config.proto import bpt_pb2 as pb
from bpt.engine import instructions as do
from bpt.system.comm.base import Communicator
from bpt.system.device import CPU
from tests.support.doubles.thread_ranks import Killed, run_ranks
from tests.support.spread_runs import set_up


def test_how_it_is_written() -> None:
    assert Fault.parse("2@5") == Fault(2, 5)
    assert Fault.parse("0@12:X2") == Fault(0, 12, "X2")
    for text in ("", "2", "@5", "2@", "2@5:", "2@5:2", "a@b", "-1@5"):
        with pytest.raises(argparse.ArgumentTypeError, match="takes RANK@ITERATION or RANK@ITERATION:INSTRUCTION"):
            Fault.parse(text)


def test_where_it_is() -> None:
    assert Fault(1, 5).is_at(5, do.Forward(2)) and not Fault(1, 5).is_at(6, do.Forward(2))
    assert Fault(1, 5, "F").is_at(5, do.Forward(2)) and Fault(1, 5, "F2").is_at(5, do.Forward(2))
    assert not Fault(1, 5, "F1").is_at(5, do.Forward(2)) and not Fault(1, 5, "B").is_at(5, do.Forward(2))
    assert Fault(1, 5, "U").is_at(5, do.UpdateWeights())


@pytest.mark.parametrize(
    ("kills", "tolerant", "message"),
    [
        ([Fault(3, 0)], True, "--kill 3@0: there are 3 ranks, from 0 to 2"),
        ([Fault(1, 10)], True, "--kill 1@10: there are 10 iterations, from 0 on; --iterations 11"),
        ([Fault(0, 1), Fault(1, 1), Fault(2, 2)], True, "--kill 2@2: all 3 ranks would be lost"),
        ([Fault(1, 1)], False, "--kill 1@1: without fault tolerance the job ends with a rank: mpirun --with-ft ulfm"),
    ],
)
def test_what_is_refused(kills: list[Fault], tolerant: bool, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        faults.check(kills, 3, 10, tolerant, FaultSpec())
    assert str(caught.value).startswith(message)


def test_a_rank_that_nobody_would_end_is_not_stopped() -> None:
    still = [Fault.parse("1@2", signal.SIGSTOP)]
    faults.check(still, 3, 10, True, FaultSpec())
    for param in (FaultSpec(timeout=0), FaultSpec(on_loss=pb.FaultParameter.STOP)):
        with pytest.raises(UsageError, match=r"--stop 1@2: .*on_loss: HEAL"):
            faults.check(still, 3, 10, True, param)


def test_a_fault_that_never_happened() -> None:
    faults.check_happened([Fault(1, 2, "F")], (0, 2))
    with pytest.raises(RunError, match="--kill 1@2:x: rank 1 never reached it"):
        faults.check_happened([Fault(1, 2, "x")], (0, 1))


def test_how_slow_ranks_and_links_are_written() -> None:
    assert Slow.parse("1=0.25@5") == Slow(1, 0.25, 5)
    assert DroppedLink.parse("2-0@3") == DroppedLink((0, 2), 3)
    assert [str(Slow(1, 0.25, 5)), str(DroppedLink((0, 2), 3))] == ["--slow 1=0.25@5", "--drop-link 0-2@3"]
    for text in ("", "1@5", "1=2@5", "1=0@5", "1=1@5", "1=-0.5@5", "1=0.5"):
        with pytest.raises(argparse.ArgumentTypeError, match="takes RANK=FACTOR@ITERATION, FACTOR between 0 and 1"):
            Slow.parse(text)
    for text in ("", "1@5", "1-1@5", "1-2", "a-b@5"):
        with pytest.raises(argparse.ArgumentTypeError, match="takes RANK-RANK@ITERATION, of two ranks"):
            DroppedLink.parse(text)


def test_how_long_a_slow_rank_waits() -> None:
    """At a quarter of its speed what took 2 s takes 8."""
    assert Slow(1, 0.25, 5).pause(5, 2.0) == 6.0
    assert Slow(1, 0.25, 5).pause(4, 2.0) == 0.0


def test_slow_ranks_need_no_fault_tolerance_and_links_need_a_timeout() -> None:
    faults.check([Slow(0, 0.5, 1), DroppedLink((0, 1), 2)], 2, 10, False, FaultSpec())
    with pytest.raises(UsageError, match=r"--drop-link 0-1@2: .* timeout"):
        faults.check([DroppedLink((0, 1), 2)], 2, 10, False, FaultSpec(timeout=0))
    with pytest.raises(UsageError, match="--drop-link 0-2@2: there are 2 ranks"):
        faults.check([DroppedLink((0, 2), 2)], 2, 10, False, FaultSpec())
    faults.check_happened([Slow(0, 0.5, 1), DroppedLink((0, 1), 2)], (0,))
    with pytest.raises(RunError, match="--drop-link 0-1@2: these two ranks never exchanged a message"):
        faults.check_happened([DroppedLink((0, 1), 2)], (0, 1))


def test_a_slow_rank_comes_to_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And it has waited, for nine times what it computed."""
    monkeypatch.chdir(tmp_path)
    set_up(tmp_path)
    waited: list[float] = []
    monkeypatch.setattr(time, "sleep", waited.append)

    def run(world: Communicator) -> None:
        compared, _ = compare(read_plan("solver.prototxt"), CPU, world, 4, faults=[Slow(1, 0.1, 2)])
        assert all(line.within(1e-5) for line in compared) and bool(compared) == (world.rank == 0)

    run_ranks(2, run)
    assert len([seconds for seconds in waited if seconds > 0]) >= 3 * 2  # F, B and U of the passes of two iterations


def test_no_message_between_two() -> None:
    """Before the iteration all get through; then those between the two do not, nor what takes both, and both learn when
    a rank is lost."""
    link = DroppedLink((0, 2), 3)
    caught: dict[int, str] = {}
    may_die = threading.Barrier(2)

    def run(world: Communicator) -> None:
        drop_links(world, [link])
        comm, flight = world.Dup(), world.events.flight
        assert flight is not None
        flight.begin_iteration(2, lambda: None)
        total = np.ones(1)
        comm.Allreduce(total)
        assert total[0] == 3
        flight.begin_iteration(3, lambda: None)
        if comm.rank == 0:
            comm.Send(np.ones(1), 1)
            may_die.wait(60)
        elif comm.rank == 1:
            comm.Recv(np.ones(1), 0)
            may_die.wait(60)
            raise Killed
        try:
            if comm.rank == 0:
                comm.Send(np.ones(1), 2)
            else:
                comm.Allreduce(total)
        except LostRankError as error:
            caught[comm.rank] = str(error)
            assert comm.Agree(1) == 1  # which finds its way

    run_ranks(3, run, tolerant=True)
    assert caught.keys() == {0, 2}
    assert all(message.startswith("rank 1 (host ") for message in caught.values())
