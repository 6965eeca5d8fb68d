"""ServerUpdate: the parameter server's part of ASGD, which applies the solver's update rule to a worker's gradients."""

from __future__ import annotations

from bpt.engine.optim import lr_policy
from bpt.system.comm.base import Buffer
from bpt.train.outer.flat_weights import FlatWeights
from bpt.train.runtime.runtime import Runtime


class ServerUpdate:
    """Updates weights by ``runtime``'s rule, whose history (momentum) is the server's.

    Args:
        runtime: the runtime whose net and history the updates change.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._flat = FlatWeights(runtime.net)

    def apply(self, weights: Buffer, gradients: Buffer, iteration: int, damping: float = 1.0) -> Buffer:
        """Return the weights after an update.

        Args:
            weights: the weights before the update.
            gradients: the sum over the iterations since the worker's last push, as flat weights (see FlatWeights).
            iteration: the solver's iteration, for the learning rate.
            damping: the factor of the learning rate.
        """
        runtime = self._runtime
        self._flat.load(weights)
        self._flat.set_gradients(gradients)
        runtime.updater.rule.update(damping * lr_policy.learning_rate(runtime.plan.optim, iteration), iteration)
        return self._flat.pack()
