"""The networks of ``scripts/bench inner``: their batches, and one training iteration under either inner engine."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from bpt.allocator import keep_freed_memory
from bpt.execute.operator import SegmentOperator
from bpt.execute.task_dag import TaskDagCompute
from bpt.net import Net
from bpt.schedule.task_dag import Timeline
from bpt.solver.solver import Solver
from scripts.benches.sides import CLASSES, SHAPES, batch_of, solver_source

LIBRARY, TASK_DAG = "LIBRARY", "TASK_DAG"
CASES = tuple(f"bpt_cnn/case{case}" for case in range(1, 8))
BATCHES = {**dict.fromkeys(CASES, 16), "googlenet": 8, "lenet": 64, "cifar10_quick": 100, "alexnet": 16, "resnet20": 64}
for case in CASES:
    SHAPES[case], CLASSES[case] = (3, 224), 1000


def make_operator(net: Net, device: torch.device, kind: str, threads: int) -> SegmentOperator:
    """What runs ``net`` under the inner engine ``kind``."""
    if kind == TASK_DAG:
        return SegmentOperator(net, device=device, compute=partial(TaskDagCompute, threads=threads))
    return SegmentOperator(net, device=device)


class Trainer:
    """Trains the network ``name`` on random samples, with ``threads`` threads.

    Args:
        kind: LIBRARY or TASK_DAG.
        engine: the solver's field of this name: the blobs' layout.
    """

    def __init__(self, name: str, kind: str, threads: int, batch: int, engine: str = "AUTO") -> None:
        keep_freed_memory()  # as the command line does
        make = partial(make_operator, kind=kind, threads=threads)
        self.solver = Solver(solver_source(name, batch, engine), make_operator=make)
        self.operator = self.solver.runtime.train.operator
        data, label = batch_of(name, batch)
        first = {edge.blob: edge.index for edge in reversed(self.solver.net.graph.edges)}
        self.operator.feed({first["data"]: data, first["label"]: label.float()})

    def step(self) -> None:
        """One iteration."""
        self.solver.step(1)

    def gradients(self) -> list[Tensor]:
        """Loss and gradients of one pass, of the weights as they are."""
        self.operator.net.zero_grad()
        self.operator.forward(0)
        self.operator.backward(0)
        return [self.operator.loss(), *(p.grad for p in self.operator.net.parameters() if p.grad is not None)]

    def timelines(self) -> list[Timeline]:
        """What the threads did in the last pass, forward and backward; none under LIBRARY."""
        compute = self.operator.compute
        return list(compute.timelines.values()) if isinstance(compute, TaskDagCompute) else []
