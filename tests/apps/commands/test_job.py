"""Job: what a command knows of the ranks it runs on, and how a rank begins."""

from __future__ import annotations

import gc
import logging
import threading

import pytest
import torch

from bpt.apps.commands import job as module
from bpt.apps.commands.job import Job
from bpt.base.garbage_collection import freeze_objects
from bpt.config.plan.run_plan import RunPlan
from bpt.system.comm.base import Communicator
from bpt.system.comm.serial import SerialCommunicator
from bpt.system.device import CPU
from tests.support.doubles.thread_ranks import ThreadCommunicator, run_ranks
from tests.support.training import solver_of


@pytest.fixture(autouse=True)
def threads(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """What torch is told last, by rank, of how many threads to use; a node's cores are shared as 3 for each rank."""
    told: dict[str, int] = {}
    monkeypatch.setattr(torch, "set_num_threads", lambda number: told.update({threading.current_thread().name: number}))
    monkeypatch.setattr(module, "share_cores", lambda comm: 3)
    return told


@pytest.fixture
def chosen(monkeypatch: pytest.MonkeyPatch) -> list[tuple[object, ...]]:
    """Notes how choose_device is asked."""
    asked: list[tuple[object, ...]] = []
    monkeypatch.setattr(module, "choose_device", lambda *args: asked.append(args) or CPU)
    return asked


def test_a_process_that_nobody_launched(chosen: list[tuple[object, ...]], threads: dict[str, int]) -> None:
    job = Job.enter(SerialCommunicator())
    assert (job.local_rank, job.local_size, job.is_first) == (0, 1, True)
    assert job.begin() == CPU
    assert chosen == [(None, "", 0, 1)]
    assert threads == {}  # torch's own choice


def test_places_on_a_machine(monkeypatch: pytest.MonkeyPatch, chosen: list[tuple[object, ...]]) -> None:
    """Hosts x, y, x, x."""
    monkeypatch.setattr(ThreadCommunicator, "host", property(lambda comm: "xyxx"[comm.rank]))

    def run(comm: Communicator) -> tuple[int, int, bool]:
        job = Job.enter(comm)
        return job.local_rank, job.local_size, job.is_first

    assert run_ranks(4, run) == [(0, 3, True), (0, 1, False), (1, 3, False), (2, 3, False)]


def test_devices_are_chosen_by_the_place_on_the_machine(chosen: list[tuple[object, ...]]) -> None:
    plan = RunPlan()
    Job(SerialCommunicator(), local_rank=2, local_size=4).begin(plan, "0,1")
    assert chosen == [(plan, "0,1", 2, 4)]


@pytest.mark.parametrize(
    ("ranks", "text", "expected"),
    [
        (1, "", []),  # torch's own choice
        (1, "parallel_param { inner_param { num_threads: 5 } }", [5]),
        (2, "", [3, 3]),
        (2, "parallel_param { inner_param { num_threads: 5 } }", [5, 5]),
    ],
)
def test_threads(ranks: int, text: str, expected: list[int], threads: dict[str, int]) -> None:
    run_ranks(ranks, lambda comm: Job(comm, comm.rank, comm.size).begin(solver_of(text)))
    assert threads == {f"rank {rank}": number for rank, number in enumerate(expected)}


@pytest.mark.parametrize(("rank", "shown"), [(0, True), (1, False)])
def test_only_the_first_rank_logs(rank: int, shown: bool) -> None:
    world = SerialCommunicator()
    world.rank = rank
    Job(world, rank, 2).begin()
    logger = logging.getLogger("bpt")
    assert logger.isEnabledFor(logging.ERROR) == shown
    assert logger.isEnabledFor(logging.INFO) == shown


def test_the_collector_leaves_alone_what_was_there_before(chosen: list[tuple[object, ...]]) -> None:
    """Once; a second job in the process must not keep what the first has left."""
    gc.unfreeze()
    freeze_objects.cache_clear()
    try:
        Job.enter(SerialCommunicator()).begin()
        frozen = gc.get_freeze_count()
        assert frozen > 10_000
        kept: list[list[int]] = [[] for _ in range(100)]
        Job.enter(SerialCommunicator()).begin()
        assert gc.get_freeze_count() <= frozen
        assert len(kept) == 100
    finally:
        gc.unfreeze()
