"""The speeds of ranks: seconds of passes, updates and codecs on the nodes of a cluster, and the work of layers."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from bpt.config.plan.run_plan import RunPlan
from bpt.engine.optim.rules import num_moments
from bpt.parallel.cluster.cluster import Cluster
from bpt.parallel.exchange.codec import CODECS
from bpt.perf.forecast.net_costs import NetCosts
from bpt.perf.forecast.rank_links import Floats

MOVED = 3  # how often a pass goes through memory as large as all parameters: forward, and twice backward
_OF_SAMPLES = 0.1  # the least part of a layer's measured time that grows with its samples


class RankSpeeds:
    """The speeds of the ranks of a cluster with the net of a plan.

    Arrays have a place for each rank unless their description says otherwise. Times are seconds.

    Attributes:
        passes: the passes of an iteration.
        speeds: samples a second of the whole net.
        overheads: of a pass, whatever its samples.
        ranks_per_core: ranks that share a core with each, itself included, while all compute.
        noise: the standard deviation of the times of each, relative to them.
        interference: by which computing takes longer for each byte of gradients that is summed meanwhile.
        borders: of a sample of a pass for each segment beside the first, and of a pass whatever its samples.
    """

    def __init__(self, plan: RunPlan, costs: NetCosts, cluster: Cluster) -> None:
        self._plan, self._costs = plan, costs
        nodes = cluster.nodes
        hosts = np.array(cluster.hosts)

        def of_ranks(name: str) -> Floats:
            found: Floats = np.array([getattr(node, name) for node in nodes])[hosts]
            return found

        self.passes = max(plan.optim.iter_size, 1)
        self.speeds = of_ranks("speed")
        self.overheads = of_ranks("overhead")
        self.ranks_per_core = of_ranks("ranks_per_core")
        self.noise = of_ranks("noise")
        self.interference = of_ranks("interference")
        self.borders = of_ranks("border"), of_ranks("border_overhead")
        self._node_updates = of_ranks("update")
        codec = plan.parallel_param.compression_param.codec
        self._node_coding = np.array([dict(node.coding).get(codec, 0.0) for node in nodes])[hosts]

    @cached_property
    def update(self) -> Floats:
        """Seconds in which each would update all parameters: as nodes say, otherwise by the costs."""
        return np.where(self._node_updates > 0, self._node_updates, self._update_within_pass * self.passes)

    @cached_property
    def pass_seconds(self) -> tuple[Floats, Floats]:
        """Seconds of a pass of the whole net whatever its samples, and of each sample, without the update."""
        update = self._update_within_pass
        whole = self.overheads + self._costs.batch / self.speeds - update
        return np.maximum(self.overheads - update, 0.0), np.minimum(1 / self.speeds, whole / self._costs.batch)

    @cached_property
    def _update_within_pass(self) -> Floats:
        """Seconds of an update for each pass that the nodes' overheads and speeds include."""
        whole = self.overheads + self._costs.batch / self.speeds
        return np.where(self._node_updates > 0, 0.0, self._costs.update / self._costs.work * whole)

    @cached_property
    def coding(self) -> Floats:
        """Seconds in which each codes a number of its gradients.

        If the nodes do not say it, it follows from the seconds of the update, since both wait for memory.
        """
        param = self._plan.parallel_param.compression_param
        numbers = sum(cost.trained for cost in self._costs.layers) / self._plan.precision.master.itemsize
        passes = CODECS[param.name](param).passes / self._moved_by_update
        found: Floats = np.where(self._node_coding > 0, self._node_coding, self.update / numbers * passes)
        return found

    @cached_property
    def parameter_seconds(self) -> Floats:
        """Seconds of a pass in which parameters are read and their gradients written, whatever the samples.

        They follow from the update, which waits for the same memory.
        """
        return np.minimum(self.pass_seconds[0], self.update * MOVED / self._moved_by_update)

    @property
    def _moved_by_update(self) -> int:
        """The number of times that an update passes through memory as large as all parameters.

        It reads weights, moments and gradients, and writes all of them except the gradients.
        """
        return 3 + 2 * num_moments(self._plan.optim)

    @cached_property
    def layer_work(self) -> tuple[Floats, Floats]:
        """(layers,) forward and backward: the part of a sample's work, without what grows with the parameters."""
        costs = self._costs
        is_known = self.parameter_seconds.any()  # otherwise all of a layer's measured time grows with its samples
        moved = is_known * costs.update / costs.work * MOVED / self._moved_by_update * self.layer_parameters
        forward, backward = costs.forward, costs.backward
        forward = np.maximum(forward - moved / MOVED, _OF_SAMPLES * forward)
        backward = np.maximum(backward - moved * (MOVED - 1) / MOVED, _OF_SAMPLES * backward)
        whole = float(forward.sum() + backward.sum())
        return forward / whole, backward / whole

    @cached_property
    def layer_parameters(self) -> Floats:
        """(layers,) the part of all trained parameters."""
        trained = np.array([cost.trained for cost in self._costs.layers])
        found: Floats = trained / (trained.sum() or 1.0)
        return found
