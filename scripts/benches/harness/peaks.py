"""How much memory the ranks of a run take at their peaks, beside what their processes held before."""

from __future__ import annotations

import gc
import resource
from pathlib import Path
from typing import Any, NamedTuple

import torch

from bpt.apps.commands import training
from bpt.config.plan.resolve import read_plan
from bpt.system.comm.base import Communicator
from bpt.train.solver.solver import Solver
from scripts.benches.harness.launch import run_worker

ITERATIONS = 3


class Peak(NamedTuple):
    """Of one rank, in bytes.

    Attributes:
        trained: that training took, at most, besides
        before: what the process held when it had loaded its libraries.
    """

    trained: int
    before: int

    @property
    def whole(self) -> int:
        """Of the process."""
        return self.trained + self.before


def peaks(solver: Path, ranks: int, *fields: str) -> list[Peak]:
    """Of each rank of a run by ``solver``, with ``fields`` laid over its text."""
    order = {"solver": str(solver), "set": fields}
    return [Peak(*both) for both in run_worker("harness.peaks", order, solver.parent, ranks, threads=1)]


def keep_memory(order: dict[str, Any]) -> None:
    """As the command line does."""
    training.keep_memory(read_plan(order["solver"], order["set"]).parallel_param)


def work(order: dict[str, Any], world: Communicator) -> list[tuple[int, int]]:
    """A rank: trains some iterations; each rank's Peak."""
    torch.set_num_threads(1)
    product = torch.randn(8, 8, requires_grad=True) @ torch.randn(8, 8)
    torch.autograd.backward(product, torch.ones(8, 8))  # what the library itself needs
    gc.collect()
    before = held()
    with Solver(read_plan(order["solver"], order["set"]), world=world) as solver:
        solver.step(ITERATIONS)
    found: list[tuple[int, int]] = world.allgather((held() - before, before))
    return found


def held() -> int:
    """Bytes that this process has held at most."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
