"""Job: the ranks that a command runs on, from what the launcher says. A process that nobody launched is a job alone."""

from __future__ import annotations

import logging
from dataclasses import dataclass

import torch

from bpt.base.garbage_collection import keep_what_is_there
from bpt.base.log import start_logging
from bpt.config.plan.run_plan import RunPlan
from bpt.system.comm import launch
from bpt.system.comm.base import Communicator
from bpt.system.comm.cores import share_cores
from bpt.system.comm.neighbours import CpuTime, MachineLoad, load_since, remarks
from bpt.system.device import choose_device

LOG = logging.getLogger("bpt")


@dataclass(frozen=True)
class Job:
    """All ranks, and this one's place among those on its machine.

    Attributes:
        started: the CPU time of this machine as the process began; ``None``: not known.
    """

    world: Communicator
    local_rank: int
    local_size: int
    started: CpuTime | None = None

    @classmethod
    def enter(cls, world: Communicator, started: CpuTime | None = None) -> Job:
        """Return the job of all ranks of ``world``; a collective call."""
        return cls(world, *launch.local_ranks(world), started)

    @property
    def is_first(self) -> bool:
        """Whether this is the rank that logs and writes."""
        return self.world.rank == 0

    def begin(self, plan: RunPlan | None = None, gpu: str = "") -> torch.device:
        """Start to log, on the first rank, and choose this rank's threads and device; see choose_device."""
        start_logging(first=self.is_first)
        keep_what_is_there()
        return self.choose(plan, gpu)

    def choose(self, plan: RunPlan | None = None, gpu: str = "") -> torch.device:
        """Return this rank's threads and device; a collective call."""
        threads = plan.parallel_param.inner_param.num_threads if plan is not None else 0
        if self.world.size > 1:  # a process that is alone leaves the choice to torch
            torch.set_num_threads(share_cores(self.world))
        if threads > 0:
            torch.set_num_threads(threads)
        return choose_device(plan, gpu, self.local_rank, self.local_size)

    def loads(self) -> list[MachineLoad]:
        """Return what each rank needs of its host, and how busy that was since the process began; a collective call."""
        return self.world.allgather(load_since(self.started, self.world.host, torch.get_num_threads()))

    def tell_of_neighbours(self) -> None:
        """Let the first rank log where ranks have too few cores, or others take them; a collective call."""
        for remark in remarks(self.loads()):
            LOG.warning("%s", remark)
