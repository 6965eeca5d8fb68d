"""What happens when ranks wait for each other too long."""

from __future__ import annotations

import pytest

from bpt.comm.base import Communicator
from bpt.comm.serial import SerialCommunicator
from bpt.doctor.watchdog import Watchdog
from tests.doctor.world import name_hosts
from tests.doubles.thread_ranks import ThreadCommunicator, run_ranks


def test_a_step_that_is_done_in_time() -> None:
    said: list[str] = []

    def step(world: Communicator) -> None:
        with Watchdog(world, said.append, seconds=10).during("a step"):
            world.Barrier()

    run_ranks(3, step)
    with Watchdog(SerialCommunicator(), said.append, seconds=0).during("nobody waits for another"):
        pass
    assert said == []


def test_a_step_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    def end_all_ranks(comm: ThreadCommunicator, status: int = 1) -> None:
        """As MPI's does; that of threads ends the calling rank, which a timer is not."""
        comm._group.job.fail(SystemExit(status))

    monkeypatch.setattr(ThreadCommunicator, "Abort", end_all_ranks)
    name_hosts(monkeypatch, ("a", "b"))
    said: list[str] = []

    def step(world: Communicator) -> None:
        with Watchdog(world, said.append, seconds=0.1).during("Data"):
            if world.rank == 0:
                world.Barrier()  # where rank 1 never comes

    with pytest.raises(SystemExit, match="1"):
        run_ranks(2, step)
    (line,) = said
    assert line.startswith("PROBLEM Data: not done after 0 s: rank 0 on host a waits for another\n → see whether")
