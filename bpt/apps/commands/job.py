"""Job: the ranks that a command runs on. A process without a launcher is a job of one rank."""

from __future__ import annotations

import logging
from dataclasses import dataclass

import torch

from bpt.base.garbage_collection import freeze_objects
from bpt.base.log import LogPlaces, start_logging
from bpt.config.plan.run_plan import RunPlan
from bpt.system.comm import launch
from bpt.system.comm.base import Communicator
from bpt.system.comm.cores import share_cores
from bpt.system.comm.neighbours import CpuTime, MachineLoad, load_since, remarks
from bpt.system.device import choose_device

LOG = logging.getLogger("bpt")


@dataclass(frozen=True)
class Job:
    """All ranks of a command, and this rank's place among the ranks of its machine.

    Attributes:
        world: all ranks.
        local_rank: this rank's number on its machine.
        local_size: the number of ranks on this machine.
        started: the CPU time of this machine when the process began; ``None``: unknown.
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

    def begin(self, plan: RunPlan | None = None, gpu: str = "", log_places: LogPlaces | None = None) -> torch.device:
        """Start logging on the first rank, and choose this rank's threads and device; a collective call.

        Args:
            plan: of the run that the device is for.
            gpu: the value of ``--gpu``.
            log_places: by default stderr, and stdout for results, unless a launcher may send both to one place.
        """
        places = log_places or LogPlaces(results_on_stdout=not launch.launched())
        start_logging(first=self.is_first, places=places)
        freeze_objects()
        return self.choose(plan, gpu)

    def choose(self, plan: RunPlan | None = None, gpu: str = "") -> torch.device:
        """Set this rank's number of threads, and return its device; a collective call."""
        threads = plan.parallel_param.inner_param.num_threads if plan is not None else 0
        if self.world.size > 1:  # torch chooses for a single process
            torch.set_num_threads(share_cores(self.world))
        if threads > 0:
            torch.set_num_threads(threads)
        return choose_device(plan, gpu, self.local_rank, self.local_size)

    def loads(self) -> list[MachineLoad]:
        """Return each rank's need of cores, and its host's load since the process began; a collective call."""
        return self.world.allgather(load_since(self.started, self.world.host, torch.get_num_threads()))

    def report_neighbours(self) -> None:
        """Log on the first rank which hosts have too few cores, or other busy programs; a collective call."""
        for remark in remarks(self.loads()):
            LOG.warning("%s", remark)
