"""The log lines with a net's outputs, in the form that Caffe's log parsers expect."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping

from torch import Tensor

from bpt.base.log import number
from bpt.config.plan.run_plan import RunPlan
from bpt.engine.late_loss import Loss
from bpt.graph.layer_graph import LayerGraph
from bpt.system.events.event import Activity
from bpt.train.runtime.runtime import Runtime
from bpt.train.solver.milestones import Displayed, Listener

LOG = logging.getLogger("bpt")


class DisplayInterval:
    """Iterations and seconds between two displayed iterations."""

    def __init__(self, iteration: int) -> None:
        self._iteration, self._start = iteration, time.perf_counter()

    def take(self, iteration: int) -> tuple[int, float]:
        """Return iterations and seconds since the last call, and begin the next interval."""
        now = time.perf_counter()
        interval = iteration - self._iteration, now - self._start
        self._iteration, self._start = iteration, now
        return interval


class TrainingDisplay:
    """Shows loss, outputs and learning rate of displayed iterations.

    Args:
        plan: selects the iterations to display.
        runtime: the run, whose updater calls the display from now on.
        notify: function to call with a milestone for each displayed iteration.
    """

    def __init__(self, plan: RunPlan, runtime: Runtime, notify: Listener) -> None:
        self._plan = plan
        self._runtime = runtime
        self._notify = notify
        self._interval = DisplayInterval(runtime.iteration)
        runtime.updater.on_loss.append(self._show_if_due)

    def begin_interval(self) -> None:
        """Begin the measurement of the speed that the next displayed iteration shows."""
        self._interval = DisplayInterval(self._runtime.iteration)

    def debugs(self, iteration: int) -> bool:
        """Return whether an iteration logs all its blobs."""
        return self._plan.debug_info and self._plan.displays(iteration)

    def _show_if_due(self, loss: Loss) -> None:
        if self._plan.displays(self._runtime.iteration):
            with self._runtime.events.during(Activity.DISPLAY):
                self._show(self._runtime.iteration)

    def _show(self, iteration: int) -> None:
        runtime = self._runtime
        outputs = runtime.nets.train.outputs.whole(runtime.passes.operator.values)
        rate, loss = runtime.updater.rates(iteration), runtime.updater.losses.value
        interval = self._interval.take(iteration)
        LOG.info("%s", display_line(iteration, loss, interval, self._plan.display))
        for line in output_lines(runtime.graph, outputs, "Train"):
            LOG.info("%s", line)
        LOG.info("Iteration %d, lr = %s", iteration, number(rate))
        self._notify(Displayed(iteration, loss, outputs, rate, *interval))


def display_line(iteration: int, loss: float, interval: tuple[int, float], display: int) -> str:
    """Return Caffe's line about a displayed iteration (one of ``display``) at the end of an interval."""
    iterations, seconds = interval
    speed = f"{number(iterations / seconds)} iter/s, {number(seconds)}s/{display} iters"
    return f"Iteration {iteration} ({speed}), loss = {number(loss)}"


def output_lines(graph: LayerGraph, values: Mapping[str, Tensor], prefix: str) -> Iterator[str]:
    """Yield a line for each element of each output: ``Train net output #0: loss = 2.3 (* 1 = 2.3 loss)``.

    Args:
        values: data of the output blobs, by name; empty on a rank without outputs.
        prefix: ``"Train"``, ``"Test"`` or ``"Average"``.
    """
    index = 0
    for edge in (edge for edge in graph.outputs if edge.blob in values):
        for value in values[edge.blob].flatten().tolist():
            yield f"    {prefix} net output #{index}: {edge.blob} = {number(value)}{loss_note(edge.loss_weight, value)}"
            index += 1


def loss_note(weight: float, value: float) -> str:
    """Return Caffe's note on the weight of an output in the loss; empty if the weight is 0."""
    return f" (* {number(weight)} = {number(weight * value)} loss)" if weight else ""
