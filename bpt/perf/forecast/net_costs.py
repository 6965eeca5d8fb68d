"""Costs: what the layers of a training net take, for whatever forecasts: clocks, allocators, the search for a plan."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from bpt.base.errors import PrototxtError
from bpt.engine.optim.rules import UPDATE_RULES
from bpt.graph.layer_graph import LayerGraph
from bpt.nn.layers.base import batch_of
from bpt.parallel.cluster.measured_costs import by_layer, read_costs_of
from bpt.parallel.pipeline.devices import NOMINAL, TRAINING
from bpt.parallel.pipeline.placement.problem import Cost, costs_of

if TYPE_CHECKING:
    from bpt.config.plan.run_plan import RunPlan


@dataclass(frozen=True)
class NetCosts:
    """What a training net takes for a whole batch, layer by layer.

    Only parts count of times: a node says how long it takes for all of it. So times may be seconds on any machine, or
    operations.

    Attributes:
        graph: the net.
        layers: of each layer its times, and its bytes of parameters and blobs.
        update: of the update rule for all parameters; 0: not known, and within what nodes take for a pass.
        measured: where times were measured, in words; "": they are counted operations.
    """

    graph: LayerGraph
    layers: tuple[Cost, ...]
    update: float = 0.0
    measured: str = ""

    @cached_property
    def batch(self) -> int:
        """Samples of a batch, as the net's text says."""
        return batch_of(self.graph)

    @cached_property
    def work(self) -> float:
        """All times together, those of a pass and of an update."""
        return math.fsum(cost.work for cost in self.layers) + self.update

    @property
    def flops(self) -> float:
        """Operations that a sample costs in training, for nodes whose speed is told in them."""
        return TRAINING * self.graph.flops / self.batch

    @cached_property
    def forward(self) -> NDArray[np.float64]:
        """(layers,) the part of the work of a batch and its update."""
        found: NDArray[np.float64] = np.array([cost.forward for cost in self.layers]) / self.work
        return found

    @cached_property
    def backward(self) -> NDArray[np.float64]:
        """As ``forward``."""
        found: NDArray[np.float64] = np.array([cost.backward for cost in self.layers]) / self.work
        return found

    def nominal_speed(self) -> float:
        """Return samples a second of a node of which nothing is known: as on the machine that measured, else of NOMINAL
        operations.
        """
        return self.batch / self.work * (1.0 if self.measured else NOMINAL)


def costs_for(plan: RunPlan, graph: LayerGraph) -> NetCosts:
    """Of the training net of a plan: measured, if ``pipeline_param { costs }`` names a file, else its operations.

    Raises:
        PrototxtError: the net has no work or no batch; or there is no such file.
        FileError: it is damaged, or of another net.
    """
    measured = read_costs_of(plan, graph)
    moments = UPDATE_RULES[plan.optim.type].moments
    layers = costs_of(graph, plan.precision, None if measured is None else by_layer(measured), moments)
    found = NetCosts(
        graph,
        layers,
        0.0 if measured is None else measured.update / max(plan.optim.iter_size, 1),
        "" if measured is None else measured.machine,
    )
    if not found.work or not batch_of(graph):
        lack = "operations to count" if not found.work else "layer that makes batches"
        raise PrototxtError(f"the training net has no {lack}, of which a forecast could be made", plan.origin("net"))
    return found
