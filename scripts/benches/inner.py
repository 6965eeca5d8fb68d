"""The inner layer: TASK_DAG with N threads against LIBRARY with N threads, in alternation, each in its own process."""

from __future__ import annotations

import argparse
import resource
import sys
from functools import partial
from statistics import median
from typing import Any

import torch
from torch import Tensor

from bpt.base.malloc_settings import keep_freed_memory
from bpt.config.proto import bpt_pb2 as pb
from bpt.engine.operator import Operator
from bpt.nn.net import Net
from bpt.parallel.task_dag import TaskDagCompute
from bpt.parallel.task_dag.task_dag import Timeline
from bpt.train.runtime.train_options import TrainOptions
from bpt.train.solver.solver import Solver
from scripts.benches.harness.nets import CASES
from scripts.benches.harness.sides import batch_of, fed, solver_source
from scripts.benches.harness.turns import Side, compete, serve_turns

HELP = "TASK_DAG (bpt's tasks) against LIBRARY (torch's threads) within one process"
LIBRARY, TASK_DAG = "LIBRARY", "TASK_DAG"
BATCHES = {**dict.fromkeys(CASES, 16), "googlenet": 8, "lenet": 64, "cifar10_quick": 100, "alexnet": 16, "resnet20": 64}
WARM_UP = 12  # iterations; they cover the choice of the layout
TURN = 0.4  # seconds that a turn should take at least


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--nets", default=",".join((*CASES, "googlenet")), help="which (default %(default)s)")
    parser.add_argument("--rounds", type=int, default=9, help="turns of each side (default %(default)s)")
    parser.add_argument("--threads", type=int, default=2, help="threads of either side (default %(default)s)")
    parser.add_argument("--batch", type=int, default=0, help="samples; 0: as usual for the network")
    parser.add_argument("--engine", default="AUTO", help="layout: AUTO, CONTIGUOUS or CHANNELS_LAST")
    parser.add_argument("--check", action="store_true", help="also compare the gradients of one pass")


def run(arguments: argparse.Namespace) -> None:
    print(
        f"{'net':<14} {'batch':>5} {'LIBRARY ms':>11} {'TASK_DAG ms':>12} {'ratio':>6} {'memory':>7}  "
        "layouts; threads, last pass"
    )
    for name in arguments.nets.split(","):
        batch = arguments.batch or BATCHES[name]
        words = arguments.threads, batch, arguments.engine
        library, dag = sides = [Side.alone("inner", name, kind, *words) for kind in (LIBRARY, TASK_DAG)]
        for side in sides:
            side.train(WARM_UP, count=False)
        iterations = max(1, round(TURN / median(library.last["seconds"])))
        compete(sides, arguments.rounds, iterations)
        print(
            f"{name:<14} {batch:>5} {library.median * 1e3:>11.2f} {dag.median * 1e3:>12.2f} "
            f"{dag.median / library.median:>6.3f} {dag.last['peak_mib'] / library.last['peak_mib']:>7.3f}  "
            f"{library.last['layout']}, {dag.last['layout']}; "
            f"{'; '.join(map(described, dag.last['passes']))}",
            flush=True,
        )
        if arguments.check:
            print(f"{'':<14} largest difference of a gradient: {difference(name, arguments.threads, batch):.2g}")


def described(passed: dict[str, float]) -> str:
    """What the threads did in a pass, in a few words."""
    share = passed["critical_path"] / passed["seconds"]
    return (
        f"{passed['tasks']:.0f} tasks, critical path {share:.0%}, balance {passed['balance']:.2f}, "
        f"waiting {passed['waiting'] * 1e3:.1f} ms"
    )


def difference(name: str, threads: int, batch: int) -> float:
    """Of one pass under both engines, with the same weights: the largest difference of the loss or of an element of a
    gradient, relative to the tensor's largest."""
    library, dag = (Trainer(name, kind, threads, batch, "CONTIGUOUS").gradients() for kind in (LIBRARY, TASK_DAG))
    return max(
        float((ours - theirs).abs().max() / theirs.abs().max().clamp(min=1e-6))
        for ours, theirs in zip(dag, library, strict=True)
    )


def serve(name: str, kind: str, threads: str, batch: str, engine: str) -> None:
    """The process of a side."""
    torch.set_num_threads(int(threads))
    trainer = Trainer(name, kind, int(threads), int(batch), engine)

    def facts() -> dict[str, Any]:
        passes = [
            {"seconds": t.seconds, "critical_path": t.critical_path[0], "balance": t.balance, "waiting": t.waiting,
             "tasks": len(t.dag)} for t in trainer.timelines()
        ]  # fmt: skip
        layout = pb.SolverParameter.Engine.Name(trainer.operator.engine)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        return {"layout": layout, "peak_mib": peak, "passes": passes}

    serve_turns(sys.stdin, trainer.step, facts)


def make_operator(net: Net, device: torch.device, kind: str, threads: int) -> Operator:
    """What runs ``net`` under the inner engine ``kind``."""
    if kind == TASK_DAG:
        return Operator(net, device=device, compute=partial(TaskDagCompute, threads=threads))
    return Operator(net, device=device)


class Trainer:
    """Trains the network ``name`` on random samples, with ``threads`` threads.

    Args:
        kind: LIBRARY or TASK_DAG.
        engine: the solver's field of this name: the blobs' layout.
    """

    def __init__(self, name: str, kind: str, threads: int, batch: int, engine: str = "AUTO") -> None:
        keep_freed_memory()  # as the command line does
        make = partial(make_operator, kind=kind, threads=threads)
        self.solver = Solver(solver_source(name, batch, engine), TrainOptions(make_operator=make))
        self.operator = self.solver.runtime.nets.train.operator
        self.operator.feed(fed(self.solver.net.graph, *batch_of(name, batch)))

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
