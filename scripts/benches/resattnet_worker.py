"""A rank of ``scripts/bench resattnet``: trains, tests after each epoch, and the first rank writes what was seen."""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from bpt.allocator import keep_freed_memory
from bpt.comm import failure
from bpt.comm.base import Communicator
from bpt.comm.cores import share_cores
from bpt.proto.sources import SolverSource, read_solver
from bpt.solver.solver import Solver

# Tests are called for here, after each epoch; snapshots by nobody.
QUIET = f"test_interval: {2**31 - 1} test_initialization: false snapshot: 0 snapshot_after_train: false display: 0"


def epoch_steps(solver: Solver, world: Communicator) -> tuple[int, int, float]:
    """Samples of the training set, samples of a batch of all ranks, and iterations of an epoch."""
    own = [(layer.epoch, layer.share.total) for layer in solver.net.data_layers().values()]
    samples, batch = next(found[0] for found in world.allgather(own) if found)  # a later stage reads no data
    batch *= solver.plan.optim.iter_size
    return samples, batch, samples / batch


def accuracy_of(solver: Solver, world: Communicator, output: str) -> float:
    """Of the first test net. A collective call."""
    solver.runtime.parallel.before_test(solver.net, solver.runtime.exchange)
    scores = solver.test(0)
    own = float(scores.outputs[output].mean()) if scores and output in scores.outputs else None
    found = [accuracy for accuracy in world.allgather(own) if accuracy is not None]
    assert found, f"the test net has no output {output}"
    return float(found[0])


def ends_of_epochs(steps: float, iterations: int) -> list[int]:
    """After how many iterations each epoch ends; the last may be cut short."""
    epochs = range(1, int(iterations / steps) + 2)
    return sorted({min(round(epoch * steps), iterations) for epoch in epochs} - {0} | {iterations})


def train(source: SolverSource, world: Communicator, epochs: float, iterations: int, output: str) -> dict[str, Any]:
    """Train so many epochs, or iterations, or else as the solver says. A collective call.

    Returns:
        The fields of ``resattnet.Seen``.
    """
    with Solver(source, world=world) as solver:
        samples, batch, steps = epoch_steps(solver, world)
        last = iterations or round(epochs * steps) or solver.plan.max_iter
        seconds: list[float] = []
        accuracies: list[float] = []
        settled = 0
        for end in ends_of_epochs(steps, last):
            while solver.iter < end:
                start = time.perf_counter()
                solver.step(1)
                seconds.append(time.perf_counter() - start)
                settled += not solver.runtime.tuner.settled
            accuracies.append(accuracy_of(solver, world, output))
        return {
            "net": solver.net.graph.name,
            "samples": samples,
            "batch": batch,
            "steps": steps,
            "step": statistics.median(seconds[settled:] or seconds),
            "seconds": sum(seconds),
            "accuracies": accuracies,
            "loss": solver.loss,
        }


def main(words: Sequence[str]) -> int:
    order, answer = map(Path, words)
    keep_freed_memory()  # as the command line does

    def command(world: Communicator) -> None:
        torch.set_num_threads(share_cores(world))
        work = json.loads(order.read_text())
        source = read_solver(work["solver"], [*work["set"], QUIET])
        seen = train(source, world, work["epochs"], work["iterations"], work["output"])
        if world.rank == 0:
            answer.write_text(json.dumps(seen))

    return failure.run(command)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
