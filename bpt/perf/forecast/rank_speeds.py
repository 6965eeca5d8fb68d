"""The speeds of ranks: seconds of passes, updates and codecs on each node of a cluster, and the work of layers."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from bpt.config.plan.run_plan import RunPlan
from bpt.engine.optim.rules import num_moments
from bpt.parallel.cluster.cluster import Cluster
from bpt.parallel.exchange.codec import CODECS
from bpt.perf.forecast.net_costs import NetCosts
from bpt.perf.forecast.rank_links import Floats

MOVED = 3  # memory traffic of a pass as a multiple of all parameters: once forward, twice backward
_OF_SAMPLES = 0.1  # smallest fraction of a layer's measured time that is assumed to grow with its samples


class RankSpeeds:
    """The speeds of the ranks of a cluster with the net of a plan.

    Arrays have an element for each rank unless their description says otherwise. Times are in seconds.

    Attributes:
        passes: the passes of an iteration.
        speeds: samples a second of the whole net.
        overheads: the part of a pass that does not depend on its samples.
        ranks_per_core: ranks that share a core while all compute, the rank itself included.
        noise: the standard deviation of a rank's times, relative to these.
        interference: the delay of computing for each byte of gradients that is summed meanwhile.
        borders: the time that each segment after the first adds: for each sample of a pass, and for a pass.
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
        """Seconds in which each rank updates all parameters, from its node or, if it gives none, from the costs."""
        return np.where(self._node_updates > 0, self._node_updates, self._update_within_pass * self.passes)

    @cached_property
    def pass_seconds(self) -> tuple[Floats, Floats]:
        """Seconds of a pass of the whole net for any samples, and for each sample, without the update."""
        update = self._update_within_pass
        whole = self.overheads + self._costs.batch / self.speeds - update
        return np.maximum(self.overheads - update, 0.0), np.minimum(1 / self.speeds, whole / self._costs.batch)

    @cached_property
    def _update_within_pass(self) -> Floats:
        """Seconds of the update that the nodes' overheads and speeds include, for each pass."""
        whole = self.overheads + self._costs.batch / self.speeds
        return np.where(self._node_updates > 0, 0.0, self._costs.update / self._costs.work * whole)

    @cached_property
    def coding(self) -> Floats:
        """Seconds in which each rank codes one number of its gradients.

        If the nodes do not give them, they follow from the seconds of the update, since memory limits both.
        """
        param = self._plan.parallel_param.compression_param
        numbers = sum(cost.trained for cost in self._costs.layers) / self._plan.precision.master.itemsize
        passes = CODECS[param.name](param).passes / self._moved_by_update
        found: Floats = np.where(self._node_coding > 0, self._node_coding, self.update / numbers * passes)
        return found

    @cached_property
    def parameter_seconds(self) -> Floats:
        """Seconds of a pass that read parameters and write their gradients, which do not depend on the samples.

        They follow from the seconds of the update, since memory limits both.
        """
        return np.minimum(self.pass_seconds[0], self.update * MOVED / self._moved_by_update)

    @property
    def _moved_by_update(self) -> int:
        """Memory traffic of an update as a multiple of all parameters.

        The update reads weights, moments and gradients, and writes weights and moments.
        """
        return 3 + 2 * num_moments(self._plan.optim)

    @cached_property
    def layer_work(self) -> tuple[Floats, Floats]:
        """(layers,) forward and backward as fractions of a sample's work, without the part that parameters cause."""
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
        """(layers,) the parameters of each layer as a fraction of all trained parameters."""
        trained = np.array([cost.trained for cost in self._costs.layers])
        found: Floats = trained / (trained.sum() or 1.0)
        return found
