"""ServerUpdate: the parameter server's part of ASGD, the solver's update rule with the gradients of a worker."""

from __future__ import annotations

from bpt.engine.optim import lr_policy
from bpt.system.comm.base import Buffer
from bpt.train.outer.flat_weights import FlatWeights
from bpt.train.runtime.runtime import Runtime


class ServerUpdate:
    """Updates weights by ``runtime``'s rule, whose history (momentum) is the server's.

    Args:
        runtime: its net is written to.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._flat = FlatWeights(runtime.net)

    def apply(self, weights: Buffer, gradients: Buffer, iteration: int) -> Buffer:
        """Return the weights after an update.

        Args:
            weights: before it.
            gradients: summed over the iterations since the worker's last push; see FlatWeights.
            iteration: of the solver, for the learning rate.
        """
        runtime = self._runtime
        self._flat.load(weights)
        self._flat.set_gradients(gradients)
        runtime.updater.rule.update(lr_policy.learning_rate(runtime.plan.optim, iteration), iteration)
        return self._flat.pack()
