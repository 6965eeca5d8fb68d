"""The costs of the layers of a training net, for clocks, allocators and the search for a plan."""

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
    """The costs of a training net for a whole batch, layer by layer.

    Only the proportions of times count, because a node gives its seconds for the whole net. So times may be seconds on
    any machine, or operations.

    Attributes:
        graph: the net.
        layers: the times of each layer, and its bytes of parameters and blobs.
        update: the time of the update of all parameters; 0: it is unknown, and the nodes' passes include it.
        measured: the machine on which times were measured; empty: times are counted operations.
    """

    graph: LayerGraph
    layers: tuple[Cost, ...]
    update: float = 0.0
    measured: str = ""

    @cached_property
    def batch(self) -> int:
        """The samples of a batch, as the net's text says."""
        return batch_of(self.graph)

    @cached_property
    def work(self) -> float:
        """The sum of all times, those of a pass and of an update."""
        return math.fsum(cost.work for cost in self.layers) + self.update

    @property
    def flops(self) -> float:
        """Operations of a sample in training, for nodes whose speed is given in operations."""
        return TRAINING * self.graph.flops / self.batch

    @cached_property
    def forward(self) -> NDArray[np.float64]:
        """(layers,) the forward pass of each layer as a fraction of the work of a batch and its update."""
        found: NDArray[np.float64] = np.array([cost.forward for cost in self.layers]) / self.work
        return found

    @cached_property
    def backward(self) -> NDArray[np.float64]:
        """(layers,) the backward pass of each layer as a fraction of the work of a batch and its update."""
        found: NDArray[np.float64] = np.array([cost.backward for cost in self.layers]) / self.work
        return found

    def nominal_speed(self) -> float:
        """Return the assumed speed, in samples a second, of a node that no file describes.

        It is as fast as the machine of the measurement or, without one, computes NOMINAL operations a second.
        """
        return self.batch / self.work * (1.0 if self.measured else NOMINAL)


def costs_for(plan: RunPlan, graph: LayerGraph) -> NetCosts:
    """Return the costs of the training net of a plan.

    They are measured if ``pipeline_param { costs }`` names a file, and otherwise counted operations.

    Raises:
        PrototxtError: the net has no work or no batch, or the file is missing.
        FileError: the file is damaged, or belongs to another net.
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
        raise PrototxtError(f"the training net has no {lack}, so no forecast can be made", plan.origin("net"))
    return found
