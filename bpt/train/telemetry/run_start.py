"""RunStart: what receivers of metrics are told of a run when it begins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bpt.graph.layer_graph import LayerGraph
from bpt.train.runtime.runtime import Runtime


@dataclass(frozen=True)
class RunStart:
    """The facts of a run that begins, or continues.

    Attributes:
        iteration: the iterations that are done.
        net: the name of the training net.
        tests: the graphs of the test nets.
        ranks: the number of ranks of the job.
        replicas, stages, shards: the grid of the ranks; with an outer layer, its workers, and the grid of each.
        random_seed: the seed.
    """

    iteration: int
    net: str
    tests: Sequence[LayerGraph]
    ranks: int
    replicas: int
    stages: int
    shards: int
    random_seed: int

    @classmethod
    def of(cls, runtime: Runtime) -> RunStart:
        """Return the facts of synchronous ranks."""
        grid, tests = runtime.parallel.grid, [built.operator.net.graph for built in runtime.nets.tests]
        return cls(
            runtime.iteration, runtime.net.graph.name, tests, grid.world.size, grid.replicas, grid.layout.depth,
            grid.shards, runtime.seed,
        )  # fmt: skip
