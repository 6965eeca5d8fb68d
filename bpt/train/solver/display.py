"""The lines in which a run shows a net's outputs, as Caffe's log parsers expect them."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping

from torch import Tensor

from bpt.base.log import number
from bpt.graph.layer_graph import LayerGraph


class DisplayInterval:
    """Iterations and seconds between two displayed iterations."""

    def __init__(self, iteration: int) -> None:
        self._iteration, self._start = iteration, time.perf_counter()

    def take(self, iteration: int) -> tuple[int, float]:
        """Return iterations and seconds since the last call, and begin the next interval."""
        now = time.perf_counter()
        lap = iteration - self._iteration, now - self._start
        self._iteration, self._start = iteration, now
        return lap


def display_line(iteration: int, loss: float, lap: tuple[int, float], display: int) -> str:
    """Return Caffe's line about a displayed iteration (one of ``display``) at the end of an interval."""
    iterations, seconds = lap
    speed = f"{number(iterations / seconds)} iter/s, {number(seconds)}s/{display} iters"
    return f"Iteration {iteration} ({speed}), loss = {number(loss)}"


def output_lines(graph: LayerGraph, values: Mapping[str, Tensor], prefix: str) -> Iterator[str]:
    """Return a line for each element of each output: ``Train net output #0: loss = 2.3 (* 1 = 2.3 loss)``.

    Args:
        values: data of the output blobs, by name; a rank that has no outputs gives none.
        prefix: ``"Train"``, ``"Test"`` or ``"Average"``.
    """
    index = 0
    for edge in (edge for edge in graph.outputs if edge.blob in values):
        for value in values[edge.blob].flatten().tolist():
            yield f"    {prefix} net output #{index}: {edge.blob} = {number(value)}{loss_note(edge.loss_weight, value)}"
            index += 1


def loss_note(weight: float, value: float) -> str:
    """Return Caffe's note on how an output counts in the loss; empty if it does not count."""
    return f" (* {number(weight)} = {number(weight * value)} loss)" if weight else ""
