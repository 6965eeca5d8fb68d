"""The operator of ``bpt.layers.detection_operators`` in ONNX: NonMaxSuppression, and what SSD does around it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch

Table = dict[Callable[..., Any], Callable[..., Any]]


def translations() -> Table:
    """What the exporter is to make of it, where a net has brought it along."""
    if "bpt.layers.detection_operators" not in sys.modules:
        return {}
    import onnxscript  # noqa: PLC0415  an extra

    op: Any = onnxscript.opset18

    def numbers(*values: int) -> Any:
        return op.Constant(value_ints=list(values))

    def detect(boxes: Any, scores: Any, background: int, least: float, threshold: float, top_k: int, keep: int) -> Any:
        by_class = op.Transpose(scores, perm=[1, 0])  # (classes, boxes)
        none = op.Constant(value_floats=[torch.finfo(torch.float32).min])
        if top_k >= 0:  # the best ones of a class alone are looked at
            boxes_there = op.Slice(op.Shape(by_class), numbers(1), numbers(2), numbers(0))
            best, _ = op.TopK(by_class, op.Min(boxes_there, numbers(top_k)), axis=1)
            worst = op.ReduceMin(best, numbers(1), keepdims=1)
            by_class = op.Where(op.GreaterOrEqual(by_class, worst), by_class, none)
        if background >= 0:
            classes = op.Squeeze(op.Slice(op.Shape(by_class), numbers(0), numbers(1), numbers(0)), numbers(0))
            every = op.Range(op.Constant(value_int=0), classes, op.Constant(value_int=1))
            hidden = op.Unsqueeze(op.Equal(every, op.Constant(value_int=background)), numbers(1))  # (classes, 1)
            by_class = op.Where(hidden, none, by_class)
        axis = numbers(0)
        chosen = op.NonMaxSuppression(
            op.Unsqueeze(boxes, axis),
            op.Unsqueeze(by_class, axis),
            op.Slice(op.Shape(boxes), numbers(0), numbers(1), numbers(0)),
            op.Constant(value_floats=[threshold]),
            op.Constant(value_floats=[least]),
        )  # (found, 3): image, class, box; by class, and by falling score
        places = op.Slice(chosen, numbers(1), numbers(3), numbers(1))
        own = op.Unsqueeze(op.GatherND(by_class, places), numbers(1))
        label = op.Slice(places, numbers(0), numbers(1), numbers(1))
        box = op.Slice(places, numbers(1), numbers(2), numbers(1))
        corners = op.Gather(boxes, op.Squeeze(box, numbers(1)), axis=0)
        image = op.Mul(own, op.Constant(value_floats=[0.0]))
        rows = op.Concat(image, op.CastLike(label, own), own, corners, axis=1)
        if keep >= 0:  # the best ones of all classes, in their order
            there = op.Slice(op.Shape(rows), numbers(0), numbers(1), numbers(0))
            number = op.Min(there, numbers(keep))
            _, kept = op.TopK(op.Squeeze(own, numbers(1)), number, axis=0)
            ordered, _ = op.TopK(kept, number, axis=0, largest=0)
            rows = op.Gather(rows, ordered, axis=0)
        nothing = op.Reshape(op.Constant(value_floats=[0.0, *[-1.0] * 6]), numbers(1, 7))
        found = op.Slice(op.Shape(rows), numbers(0), numbers(1), numbers(0))
        filled = op.Slice(op.Concat(rows, nothing, axis=0), numbers(0), op.Max(found, numbers(1)), numbers(0))
        return op.Unsqueeze(filled, numbers(0, 1))

    return {torch.ops.bpt.detect.default: detect}
