"""A rank of a job of ``scripts/bench mpifc``: times a layer in many ways."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from bpt.config.proto.merge import apply_set
from bpt.config.proto.sources import SolverSource
from bpt.config.proto.upgrade import upgrade_solver
from bpt.engine import instructions as do
from bpt.engine.instructions import InstructionStep
from bpt.system.comm.base import Communicator
from bpt.system.events.totals import Totals, phase_seconds
from bpt.train.solver.solver import Solver
from scripts.benches.harness.turns import in_turn
from scripts.benches.mpifc.ways import Way, layer_solver

FLOAT = 4  # bytes of an element
FLOPS = 2  # of a multiply-add
PACKED = "_linear_pointwise"  # oneDNN's product, by which larger layers compute; torch's register lacks it
SENT = (do.Forward, do.Backward, do.UpdateWeights)
WARM_UP = 2  # iterations of a turn that do not count
Laps = list[dict[str, float]]


def work(order: dict[str, Any], world: Communicator) -> list[dict[str, Any]]:
    """A rank's life: times every way in turn, with every size of the layer.

    Returns:
        For each way and size: "laps", seconds of each phase of each iteration, on the rank that waits for all; and
        "elements", that all ranks have sent in an iteration: forward, backward and for the update; and "multiply_adds",
        the most that a rank has made in an iteration: forward, backward and for the update, counted in its operations.
    """
    cases = [(Way(**way), outputs) for outputs in order["outputs"] for way in order["ways"]]
    solvers = [layer_runner(way, order["inputs"], outputs, world) for way, outputs in cases]
    found: list[dict[str, Any]] = [
        {"way": vars(way), "outputs": outputs, "laps": [], "elements": []} for way, outputs in cases
    ]
    for number in in_turn(range(len(cases)), order["rounds"]):
        laps, sent = turn(solvers[number], world, order["iterations"])
        found[number]["laps"] += laps
        found[number]["elements"] = [sum(direction) / FLOAT for direction in zip(*world.allgather(sent), strict=True)]
    for number, solver in enumerate(solvers):
        of_ranks = world.allgather(count_operations(solver))
        found[number]["multiply_adds"] = [max(counts) for counts in zip(*of_ranks, strict=True)]
        solver.close()
    return found


def layer_runner(way: Way, inputs: int, outputs: int, world: Communicator) -> Solver:
    """Trains the layer."""
    source = SolverSource(layer_solver(way, inputs, outputs), "layer", {})
    apply_set(source.param, [way.parallel])
    upgrade_solver(source.param, {}, "layer")
    return Solver(source, world=world)


def turn(solver: Solver, world: Communicator, iterations: int) -> tuple[Laps, list[float]]:
    """Train; phases of each iteration on the slowest rank, and the bytes that this one sent, by kind of SENT."""
    solver.step(WARM_UP)
    laps: Laps = []
    sent = [0.0] * len(SENT)
    with solver.runtime.events.into(Totals()) as totals:
        for _ in range(iterations):
            start = time.perf_counter()
            solver.step(1)
            seconds = time.perf_counter() - start
            taken = totals.take()
            laps.append({"total": seconds} | phase_seconds(taken))
            for key, traffic in taken.items():
                if key.method and isinstance(key.step, InstructionStep) and key.step.kind in SENT:
                    sent[SENT.index(key.step.kind)] += traffic.sent / iterations
    ranks = world.allgather(laps)
    return [max(of_all, key=lambda lap: lap["total"]) for of_all in zip(*ranks, strict=True)], sent


class Operations(TorchDispatchMode):
    """Counts the multiply-adds of an iteration, in the operations that torch executes.

    Attributes:
        forward, backward: in matrix products, outside of backward passes and in them.
        update: elements of ``weights`` that are written, outside of backward passes; each takes one multiply-add.
    """

    def __init__(self, weights: Iterable[torch.Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch's has no annotations
        self.forward: int = 0
        self.backward: int = 0
        self.update: int = 0
        self._weights = {weight.data_ptr() for weight in weights}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        made = self._product(func, args, kwargs or {}, result)
        if torch._C._current_autograd_node() is not None:  # torch has no public name for it
            self.backward += made
            return result
        self.forward += made
        if func._schema.is_mutable and args:
            written = args[0] if isinstance(args[0], (list, tuple)) else (args[0],)
            self.update += sum(each.numel() for each in written if each.data_ptr() in self._weights)
        return result

    @staticmethod
    def _product(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any) -> int:
        """Return the multiply-adds of a matrix product; 0 for all other operations."""
        flops = flop_registry.get(func._overloadpacket)
        if flops is not None:
            return int(flops(*args, **kwargs, out_val=result)) // FLOPS
        if func._overloadpacket.__name__ == PACKED:
            return int(result.numel() * args[0].shape[-1])
        return 0


def count_operations(solver: Solver) -> tuple[int, int, int]:
    """Train an iteration; returns this rank's multiply-adds: forward, backward and in the update of weights.

    Biases do not count, as in Table 1.
    """
    with Operations(weight for weight in solver.net.parameters() if weight.dim() > 1) as operations:
        solver.step(1)
    return operations.forward, operations.backward, operations.update
