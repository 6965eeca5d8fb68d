"""ServerUpdate: the parameter server's part of ASGD, the solver's update rule with the gradients of a worker."""

from __future__ import annotations

from bpt.comm.base import Buffer
from bpt.optim import lr_policy
from bpt.server.flat_weights import FlatWeights
from bpt.solver.solver import Solver


class ServerUpdate:
    """Updates weights by ``solver``'s rule, whose history (momentum) is the server's.

    Args:
        solver: its net is written to.
    """

    def __init__(self, solver: Solver) -> None:
        self._solver = solver
        self._flat = FlatWeights(solver.net)

    def apply(self, weights: Buffer, gradients: Buffer, iteration: int) -> Buffer:
        """The weights after an update.

        Args:
            weights: before it.
            gradients: summed over the iterations since the worker's last push; see FlatWeights.
            iteration: of the solver, for the learning rate.
        """
        solver = self._solver
        self._flat.load(weights)
        self._flat.set_gradients(gradients)
        solver.rule.update(lr_policy.learning_rate(solver.plan.optim, iteration), iteration)
        return self._flat.pack()
