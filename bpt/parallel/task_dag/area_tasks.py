"""Tasks of a convolution, split by areas of its top (BPT-CNN, section 4.1.1, Algorithm 4.1).

For batches of too few samples. Forward, each task reads its area of the bottom and makes its rows and columns of the
top; the element-wise layers behind the convolution, too. Backward, each task makes the diff of its area; where areas
overlap these are added, in order of the areas.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional

from bpt.nn.layers.convolution import Convolution
from bpt.parallel.task_dag.areas import Area, decompose
from bpt.parallel.task_dag.blocks import TaskBlock
from bpt.parallel.task_dag.dag_state import WHOLE, DagState, like
from bpt.parallel.task_dag.draft import Draft
from bpt.parallel.task_dag.layer_tasks import Calls, LayerTasks, calls_of
from bpt.parallel.task_dag.split_strategy import axes_of

ROWS = 2  # the axis; columns are the one behind it


class AreaTasks(LayerTasks):
    """One task an area and, backward, one that adds the diffs of the areas."""

    def __init__(self, block: TaskBlock, draft: Draft) -> None:
        super().__init__(block, draft)
        layer = draft.net.layer(block.nodes[0])
        assert isinstance(layer, Convolution)
        self._layer = layer
        self._areas = decompose(axes_of(layer, draft.net.graph.edges[self.bottom].shape), block.strategy.grid)

    def calls(self, part: int) -> Calls:
        convolution = partial(convolve, self._layer, area=self._areas[part])
        return [(convolution, self.block.nodes[0]), *calls_of(self.block, self.draft)[1:]]

    def of_bottom(self, blob: Tensor, part: int) -> Tensor:
        for axis, span in enumerate(self._areas[part], ROWS):
            blob = blob.narrow(axis, span.begin, span.end - span.begin)
        return blob

    def of_top(self, diff: Tensor, part: int) -> Tensor:
        for axis, span in enumerate(self._areas[part], ROWS):
            diff = diff.narrow(axis, span.first, span.last - span.first)
        return diff

    def store_top(self, run: DagState, edge: int, part: int, value: Tensor) -> None:
        run.values[edge, WHOLE] = whole = run.buffer(("top", edge), lambda: self._whole(edge, value))
        self.of_top(whole, part).copy_(value)

    def _whole(self, edge: int, piece: Tensor) -> Tensor:
        """Return memory for a blob of which ``piece`` is an area."""
        return like((*piece.shape[:ROWS], *self.draft.net.graph.edges[edge].shape[ROWS:]), piece)

    def store_diffs(self, run: DagState, part: int, diffs: Mapping[int, Tensor | None]) -> None:
        if (diff := diffs.get(self.bottom)) is not None:
            run.saved[self.block.index, part] = diff

    def note_diffs(self, made: Sequence[int]) -> None:
        if self.draft.wants[self.bottom]:
            self.draft.diffs.note(self.bottom, self.add("overlap", 0.0, [made], [self._overlap]))

    def _overlap(self, run: DagState) -> None:
        whole = None
        for part in range(len(self._areas)):
            piece = run.saved.pop((self.block.index, part), None)
            if piece is not None:
                whole = self._whole(self.bottom, piece).zero_() if whole is None else whole
                self.of_bottom(whole, part).add_(piece)
        run.diffs[self.bottom, WHOLE] = whole


def convolve(layer: Convolution, x: Tensor, area: Area) -> Tensor:
    """Return the places of the layer's top in ``area``.

    Args:
        x: the area of the bottom, ``(N, channels, rows of the area, columns of the area, …)``.
    """
    window = layer.window
    axes = x.dim() - 2
    zeros = [number for span in reversed(area) for number in (span.before, span.after)]
    if any(zeros):
        x = functional.pad(x, [0, 0] * (axes - len(area)) + zeros)
    pad = [0] * len(area) + [window.pad[axis if len(window.pad) > 1 else 0] for axis in range(len(area), axes)]
    bias = layer.blob(1) if layer.bias_term else None
    return torch.convolution(
        x, layer.blob(0), bias, window.stride, pad, window.dilation, False, (0,), layer.group
    )  # fmt: skip
