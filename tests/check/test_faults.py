"""Where ranks are to be killed: how it is written, and what is refused."""

from __future__ import annotations

import argparse
import signal

import pytest

from bpt.check import faults
from bpt.check.faults import Fault
from bpt.errors import RunError, UsageError
from bpt.plan.spec import FaultSpec
from bpt.proto import bpt_pb2 as pb
from bpt.schedule import instructions as do


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
    assert Fault(1, 5, "U").is_at(5, do.Update())


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
        with pytest.raises(UsageError, match="--stop 1@2: nobody would end it"):
            faults.check(still, 3, 10, True, param)


def test_a_fault_that_never_happened() -> None:
    faults.check_happened([Fault(1, 2, "F")], (0, 2))
    with pytest.raises(RunError, match="--kill 1@2:x: rank 1 never came there"):
        faults.check_happened([Fault(1, 2, "x")], (0, 1))
