"""TrainingPasses: runs the passes of the training net, in observed and in other iterations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from bpt.engine.executor import Executor
from bpt.engine.late_loss import LateLoss, Loss
from bpt.nn.net import Net
from bpt.train.runtime.adaptive_batch import AdaptiveBatch
from bpt.train.runtime.recovery import RecoveryPoint
from bpt.train.runtime.starting_point import positions_of, set_positions
from bpt.train.runtime.updater import Updater


class TrainingPasses:
    """The passes of the training net.

    Args:
        updater: updates the net at the end of each iteration.
        recovery: records the state before and after an update.
        batch: decides the number of passes of each iteration; ``None``: it is ``iter_size``.

    Attributes:
        executor: the usual executor.
        observing: the executor of iterations with observed blobs and diffs; without an observer it is ``executor``.
        operator: the operator that ran the training net last, whose values and diffs can be read.
        before: functions to call at the beginning of an iteration.
    """

    def __init__(
        self,
        executor: Executor,
        observing: Executor,
        updater: Updater,
        recovery: RecoveryPoint,
        batch: AdaptiveBatch | None = None,
    ) -> None:
        self.executor = executor
        self.observing = observing
        self.operator = executor.operator
        self.before: list[Callable[[], object]] = []
        self._updater = updater
        self._recovery = recovery
        self._batch = batch
        if batch:
            executor.before = batch.note
        self._positions = positions_of({"train": self._net})
        if self.has_observer:
            updater.on_loss.append(self._divide_diffs)

    @property
    def has_observer(self) -> bool:
        """Whether blobs and diffs can be observed."""
        return self.observing is not self.executor

    @property
    def count(self) -> int:
        """The number of passes of an iteration."""
        return self.executor.passes

    def _set_count(self, count: int) -> None:
        self.executor.passes = self.observing.passes = count
        self._updater.rule.spec = replace(self._updater.rule.spec, iter_size=count)

    @property
    def _net(self) -> Net:
        return self.executor.operator.net

    def train(self, iteration: int, debug: bool, observed: bool) -> Loss:
        """Train one iteration; return its loss.

        Args:
            debug: whether to log every blob and diff, in Caffe's lines.
            observed: whether blobs, diffs and the subtracted updates must be readable afterwards.
        """
        self._positions = positions_of({"train": self._net})
        for call in self.before:
            call()
        if self._batch:
            self._set_count(self._batch.scale.passes)
        self._updater.begin(iteration, keeps_updates=observed)
        if self.has_observer and not observed:
            self._copy_inputs()
        executor = self.observing if observed else self.executor
        if executor.operator is not self.operator:
            self.complete_weights()
        self.operator = executor.operator
        early = None if debug else self._updater.early(self.operator, iteration)
        late = not (debug or observed) and self._updater.may_read_late(iteration, self.operator.device)
        update = partial(self._update, executor, iteration)
        return executor.train(iteration, update, debug, self._updater.scale.begin, early, late)

    def complete_weights(self) -> None:
        """Wait for the weights that other ranks have updated, because they will be read."""
        for executor in (self.executor, self.observing):
            executor.complete_weights()

    def check(self) -> None:
        """Raise the errors in data that the GPU has detected since the last call."""
        self.executor.operator.compute.check()

    def _update(self, executor: Executor, iteration: int, loss: Loss) -> None:
        if not isinstance(loss, LateLoss):
            self.check()
        if self._batch and executor is self.executor:
            self._batch.end(iteration, self.count, self._updater.scale.value)
        self._updater.update(iteration, loss, executor.applied(), partial(self._replay_forward, iteration))
        self._recovery.come_to(iteration + 1)

    def _divide_diffs(self, loss: Loss) -> None:
        """Divide the diffs by the loss scale, because observers expect those of the unscaled loss."""
        if self.operator is self.observing.operator:
            self.operator.divide_diffs()

    def _copy_inputs(self) -> None:
        """Copy the blobs that the user has set for Input layers to the usual operator."""
        net, seen = self._net, self.observing.operator.values
        edges = (edge.index for edge in net.graph.input_edges)
        self.executor.operator.feed({edge: seen[edge] for edge in edges if edge in seen})

    def _replay_forward(self, iteration: int) -> None:
        """Run the training net forward as the current iteration did."""
        set_positions({"train": self._net}, self._positions)
        for number in range(self.count):
            self.observing.evaluate(iteration, number)

    def forward_only(self, iteration: int, debug: bool) -> float:
        """Run the last pass of an iteration forward with the current weights; return this rank's loss."""
        self.operator = self.observing.operator
        return self.observing.evaluate(iteration, self.count - 1, debug=debug)
