"""Translate the operators of ``bpt.nn.layers.detection_operators`` to ONNX, by NonMaxSuppression and TopK.

The translations work for batches of any size. TopK selects the best numbers of a row, of equal numbers the first.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch

Table = dict[Callable[..., Any], Callable[..., Any]]
LEAST = torch.finfo(torch.float32).min


def translations() -> Table:
    """Return the translations for torch's exporter; none if no net has imported the operators."""
    if "bpt.nn.layers.detection_operators" not in sys.modules:
        return {}
    import onnxscript  # noqa: PLC0415  an extra

    made = _Suppressions(onnxscript.opset18)

    # Functions and not methods, because the exporter sets attributes of these objects.
    def detect(boxes: Any, scores: Any, background: int, least: float, threshold: float, top_k: int, keep: int) -> Any:
        return made.detect(boxes, scores, background, least, threshold, top_k, keep)

    def propose(boxes: Any, scores: Any, before: int, overlap: float, most: int) -> Any:
        return made.propose(boxes, scores, before, overlap, most)

    return {torch.ops.bpt.detect.default: detect, torch.ops.bpt.propose.default: propose}


class _Suppressions:
    """Builds the operators from those of an opset, ``op``."""

    def __init__(self, op: Any) -> None:
        self.op = op

    def numbers(self, *values: int) -> Any:
        return self.op.Constant(value_ints=list(values))

    def floats(self, *values: float) -> Any:
        return self.op.Constant(value_floats=list(map(float, values)))

    def length(self, values: Any, axis: int) -> Any:
        """Return the length of an axis, of shape (1,)."""
        return self.op.Slice(self.op.Shape(values), self.numbers(axis), self.numbers(axis + 1), self.numbers(0))

    def columns(self, table: Any, first: int, last: int) -> Any:
        return self.op.Slice(table, self.numbers(first), self.numbers(last), self.numbers(1))

    def best(self, values: Any, number: int, axis: int) -> tuple[Any, Any]:
        """Return the ``number`` best values along the last ``axis``, or all if there are fewer, and their places."""
        limit = self.op.Min(self.length(values, axis), self.numbers(number))
        found: tuple[Any, Any] = self.op.TopK(values, limit, axis=axis)
        return found

    def only_best(self, values: Any, number: int, axis: int) -> Any:
        """Return ``values`` with all but the ``number`` best along ``axis`` set to LEAST."""
        best, places = self.best(values, number, axis)
        nothing = self.op.Expand(self.floats(LEAST), self.op.Shape(values))
        return self.op.ScatterElements(nothing, places, best, axis=axis)

    def suppressed(self, boxes: Any, scores: Any, most: Any, threshold: float, least: float) -> Any:
        """Return the boxes that remain after suppression, by descending score.

        Args:
            boxes: boxes, (N, P, 4).
            scores: scores, (N, classes, P).
            most: the largest number of boxes of each class.
            threshold: the overlap above which a box suppresses another.
            least: the score that a box must exceed.

        Returns:
            Rows (image, class, box), (found, 3).
        """
        return self.op.NonMaxSuppression(boxes, scores, most, self.floats(threshold), self.floats(least))

    def propose(self, boxes: Any, scores: Any, before: int, overlap: float, most: int) -> Any:
        op = self.op
        # Reversed, because Proposal takes the last of equal scores first.
        flipped = tuple(self.numbers(number) for number in (-1, -(2**62), 1, -1))
        order = op.Slice(scores, *flipped)
        chosen = self.suppressed(
            op.Slice(op.Add(boxes, self.floats(0, 0, 1, 1)), *flipped),  # a box includes the pixels of both corners
            op.Unsqueeze(self.only_best(order, before, 1), self.numbers(1)),
            self.numbers(most),
            overlap,
            LEAST,
        )
        place = op.Sub(op.Sub(self.length(scores, 1), self.numbers(1)), self.columns(chosen, 2, 3))
        return op.Concat(self.columns(chosen, 0, 1), place, axis=1)

    def detect(
        self, boxes: Any, scores: Any, background: int, least: float, threshold: float, top_k: int, keep: int
    ) -> Any:
        op = self.op
        by_class = op.Transpose(scores, perm=[0, 2, 1])  # (N, classes, P)
        if top_k >= 0:
            by_class = self.only_best(by_class, top_k, 2)
        if background >= 0:
            classes = op.Squeeze(self.length(by_class, 1), self.numbers(0))
            every = op.Range(op.Constant(value_int=0), classes, op.Constant(value_int=1))
            hidden = op.Unsqueeze(op.Equal(every, op.Constant(value_int=background)), self.numbers(1))  # (classes, 1)
            by_class = op.Where(hidden, self.floats(LEAST), by_class)
        images, priors = self.length(by_class, 0), self.length(by_class, 2)
        if len(boxes.shape) == 3:
            rows = self.suppressed(boxes, by_class, priors, threshold, least)
            corners = op.GatherND(boxes, op.Gather(rows, self.numbers(0, 2), axis=1))
        else:  # each class has its own boxes, so each (image, class) becomes an image for NonMaxSuppression
            own = op.Reshape(
                op.Transpose(boxes, perm=[0, 2, 1, 3]), op.Concat(self.numbers(-1), priors, self.numbers(4), axis=0)
            )
            alone = op.Reshape(by_class, op.Concat(self.numbers(-1, 1), priors, axis=0))
            found = self.suppressed(own, alone, priors, threshold, least)
            corners = op.GatherND(own, op.Gather(found, self.numbers(0, 2), axis=1))
            several = self.length(by_class, 1)
            first = self.columns(found, 0, 1)
            image = op.Div(first, several)
            rows = op.Concat(image, op.Sub(first, op.Mul(image, several)), self.columns(found, 2, 3), axis=1)
        score = op.Unsqueeze(op.GatherND(by_class, rows), self.numbers(1))
        table = op.Concat(op.CastLike(self.columns(rows, 0, 2), score), score, corners, axis=1)
        if keep >= 0:
            table = op.Compress(table, self._keep_best(by_class, rows, score, keep), axis=0)
        image = op.CastLike(op.Range(op.Constant(value_int=0), op.Squeeze(images), op.Constant(value_int=1)), score)
        nothing = op.Expand(self.floats(*[-1.0] * 6), op.Concat(images, self.numbers(6), axis=0))
        nothing = op.Concat(op.Unsqueeze(image, self.numbers(1)), nothing, axis=1)
        found = self.length(table, 0)
        filled = op.Where(op.Greater(found, self.numbers(0)), found, images)
        table = op.Slice(op.Concat(table, nothing, axis=0), self.numbers(0), filled, self.numbers(0))
        return op.Unsqueeze(table, self.numbers(0, 1))

    def _keep_best(self, by_class: Any, rows: Any, score: Any, keep: int) -> Any:
        """Return whether each row is among the ``keep`` best of its image, over all classes."""
        op = self.op
        nothing = op.Expand(self.floats(LEAST), op.Shape(by_class))
        found = op.ScatterND(nothing, rows, op.Squeeze(score, self.numbers(1)))
        found = op.Reshape(found, op.Concat(self.length(found, 0), self.numbers(-1), axis=0))  # (N, classes · P)
        best, places = self.best(found, keep, 1)
        marks = op.ScatterElements(
            op.Mul(found, self.floats(0.0)), places, op.Exp(op.Mul(best, self.floats(0.0))), axis=1
        )
        marked = op.GatherND(op.Reshape(marks, op.Shape(by_class)), rows)
        return op.Greater(marked, self.floats(0.0))
