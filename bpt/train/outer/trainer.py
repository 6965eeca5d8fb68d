"""Trainer: the net of a computing node, which its Worker trains."""

from __future__ import annotations

from collections.abc import Sequence

from bpt.data.sample_partition import Run
from bpt.system.comm.base import Buffer
from bpt.train.metrics import CorrectCount, LocalAccuracy
from bpt.train.outer.data_set import dealt_layers
from bpt.train.outer.flat_weights import FlatWeights
from bpt.train.runtime.runtime import Runtime
from bpt.train.solver.solver import RunOutcome


class Trainer:
    """A whole net in training on one rank.

    Args:
        runtime: a runtime without tests and snapshots.
        gradients: whether to submit gradients (ASGD) and not weights.

    Attributes:
        layers: the layers that read a data set.
        size, dtype: number and type of the elements of flat weights (see FlatWeights).
    """

    def __init__(self, runtime: Runtime, gradients: bool) -> None:
        self._runtime = runtime
        self._flat = FlatWeights(runtime.net)
        self._accuracy = LocalAccuracy(runtime.net)
        self._sums = self._flat.zeros() if gradients else None
        if gradients:
            runtime.updater.before_update.append(self._add)
        self.layers = dealt_layers(runtime.net)
        self.size = self._flat.size
        self.dtype = self._flat.dtype

    @property
    def settled(self) -> bool:
        """Whether all trials are finished."""
        return self._runtime.tuner.settled

    @property
    def engines(self) -> tuple[int, ...]:
        """The current memory layout and inner engine."""
        return self._runtime.tuner.engines

    def allocate(self, runs: Sequence[Run], begun: int, gives: Sequence[Run] = ()) -> None:
        """Add samples to the training data from the next batch on, and remove ``gives`` (PrefetchingDataLayer)."""
        for layer in self.layers:
            layer.allocate(runs, begun, gives)

    def load(self, weights: Buffer) -> None:
        """Continue from these weights, and keep the history (momentum)."""
        self._flat.load(weights)

    def warm_up(self) -> None:
        """Train until all trials are finished, and undo these iterations."""
        self._runtime.warm_up()
        self._accuracy.take()
        if self._sums is not None:
            self._sums = self._flat.zeros()

    def step(self, iteration: int) -> float:
        """Train this iteration of the solver; return its loss.

        An iteration continues where the last one ended, for any number: under DELAYED, batches stay under way.
        """
        self._runtime.iteration = iteration
        self._runtime.passes.executor.renumber(iteration)
        return self._runtime.iterate()

    def examine(self, iterations: int) -> None:
        """Run the samples of the last ``iterations`` forward once more, so that ``tally`` counts them.

        It uses the current weights and the training net, and does not affect training.
        """
        runtime = self._runtime
        kept = self._flat.pack()  # a BatchNorm changes its statistics in a pass
        self._accuracy.take()
        states = runtime.net.hidden_states
        batches = iterations * runtime.plan.optim.iter_size
        for layer in self.layers:
            layer.position -= batches * layer.share.total
        for batch in range(batches):
            runtime.passes.executor.evaluate(runtime.iteration, batch)
        self._flat.load(kept)
        runtime.net.hidden_states = states

    def tally(self) -> CorrectCount:
        """Return the counts of predictions since the last call."""
        return self._accuracy.take()

    def trained(self) -> Buffer:
        """Return the weights, or the sum of the gradients since the last call, in a buffer for the caller."""
        if self._sums is None:
            return self._flat.pack()
        sums, self._sums = self._sums, self._flat.zeros()
        return sums

    def end(self, outcome: RunOutcome) -> None:
        """Do nothing at the end of the run; subclasses act on it."""

    def _add(self, loss: float) -> None:
        assert self._sums is not None
        self._flat.add_gradients(self._sums)
