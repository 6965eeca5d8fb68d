"""RegionLoss: the loss of boxes, objectness and classes at each place of a feature map (YOLO 2)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from bpt.base.errors import DataError
from bpt.graph.layer_spec import LayerShapes, LayerSpec, Shape, count
from bpt.nn.layers.axes import show_bottoms
from bpt.nn.layers.base import LAYERS
from bpt.nn.layers.loss import Loss
from bpt.nn.pass_context import PassContext

FIELD = "region_loss_param"
COORDS, ROW = 4, 5  # the lengths of a box and of a box with its class
WARM_UP, ITS_SCALE = 12800, 0.01  # the number of samples that draw boxes to their anchors, and the weight of that


class _Targets(NamedTuple):
    """The target of each box, and its weight: (N, anchors, …, H, W)."""

    box: Tensor
    box_scale: Tensor
    found: Tensor
    found_scale: Tensor
    label: Tensor  # -1: none


@LAYERS.register("RegionLoss")
class RegionLoss(Loss):
    """``1/N · Σ (½ coord (b - b*)² + ½ object (c - c*)² + ½ noobject c² + class (-log p[label]))``.

    Bottoms: ``(N, num · (5 + num_class), H, W)``, for each of ``num`` anchors x, y, log width, log height, confidence
    and class scores; and labels ``(N, 5 · rows)``, rows of (class, x, y, width, height) in parts of the image, up to
    the first without width. Anchors' ``biases`` are widths and heights in cells.

    An object belongs to the cell of its centre, and there to the anchor whose shape overlaps it best (``bias_match``;
    else the box). The box b is drawn to it. The confidence c is drawn to their overlap (``rescore``; else to 1), which
    gets no diff. A softmax is drawn to its class (``softmax: 0``: a sigmoid for each class, as in darknet). Of two
    objects of one anchor the last one counts. All other confidences are drawn to 0, except where a box overlaps an
    object by more than ``thresh``. In the first 12,800 samples of training, boxes without an object are drawn to their
    anchors, by 0.01. (Redmon, Farhadi, *YOLO9000*, 2017, 2.) The diffs are those of the fork, which shows Σ diff² as
    the loss.

    Raises:
        DataError: in ``forward``, for a label that is not a class.
    """

    reads = frozenset()
    flops_per_bottom = 4

    def __init__(self, spec: LayerSpec, context: PassContext) -> None:
        super().__init__(spec, context)
        self.param = spec.param.region_loss_param
        self.register_buffer("anchors", torch.tensor(list(self.param.biases)).view(-1, 2), persistent=False)
        self.anchors: Tensor

    @classmethod
    def infer(cls, spec: LayerSpec, bottoms: Sequence[Shape]) -> LayerShapes:
        param, (boxes, labels) = spec.param.region_loss_param, bottoms
        if param.coords != COORDS:
            raise spec.error("coords must be 4: a box has a place and a size", FIELD, "coords")
        if not param.num or not param.num_class:
            raise spec.error("num and num_class must be at least 1", FIELD)
        if len(param.biases) != 2 * param.num or min(param.biases) <= 0:
            raise spec.error(
                f"needs {2 * param.num} biases above 0, width and height of each of num {param.num} anchors, found "
                f"{len(param.biases)}",
                FIELD,
            )
        wanted = param.num * (ROW + param.num_class)
        if len(boxes) != 4 or boxes[1] != wanted or count(labels[1:]) % ROW:
            raise spec.error(
                f"needs boxes (N, {wanted}, H, W) for {param.num} anchors and {param.num_class} classes, and labels in "
                f"rows of 5: {show_bottoms(spec, bottoms)}",
                "bottom",
            )
        return super().infer(spec, bottoms)

    def forward(self, *bottoms: Tensor) -> Tensor:
        images, _, height, width = bottoms[0].shape
        every = bottoms[0].reshape(images, self.param.num, ROW + self.param.num_class, height, width)
        box = torch.cat((every[:, :, :2].sigmoid(), every[:, :, 2:4]), 2)
        found, scores = every[:, :, 4].sigmoid(), every[:, :, 5:]
        with torch.no_grad():
            goal = self._targets(box, found, bottoms[1].reshape(images, count(bottoms[1].shape[1:]) // ROW, ROW))
        boxes = goal.box_scale * (box - goal.box).square().sum(2)
        confidences = goal.found_scale * (found - goal.found).square()
        classes = self._of_classes(scores.transpose(1, 2), goal.label)
        total = (boxes.sum() + confidences.sum()) / 2 + self.param.class_scale * classes
        return total / self.divisor(images)

    def _of_classes(self, scores: Tensor, labels: Tensor) -> Tensor:
        """Return the class loss of scores (N, classes, …), where there is a label (N, …)."""
        if self.param.softmax:
            return functional.cross_entropy(scores, labels, reduction="sum", ignore_index=-1)
        own = scores.movedim(1, -1)[labels >= 0]
        wanted = functional.one_hot(labels[labels >= 0], self.param.num_class).to(own)
        return functional.binary_cross_entropy_with_logits(own, wanted, reduction="sum")

    def _targets(self, box: Tensor, found: Tensor, labels: Tensor) -> _Targets:
        param, (images, number, _, height, width) = self.param, box.shape
        anchors, cells = self.anchors.to(box), box.new_tensor((width, height))
        goal = _Targets(
            box.new_tensor((0.5, 0.5, 0, 0)).view(1, 1, 4, 1, 1).repeat(images, number, 1, height, width),
            torch.full_like(found, ITS_SCALE if self._warms_up else 0),
            torch.zeros_like(found),
            torch.full_like(found, param.noobject_scale),
            torch.full_like(found, -1, dtype=torch.long),
        )
        corners = torch.meshgrid(*(torch.arange(n, device=box.device).to(box) for n in (width, height)), indexing="xy")
        places = (box[:, :, :2] + torch.stack(corners)) / cells.view(2, 1, 1)
        sizes = box[:, :, 2:].exp() * (anchors / cells).view(number, 2, 1, 1)
        for image, rows in enumerate(labels):
            rows = rows[: int((rows[:, 3:] > 0).all(1).cumprod(0).sum())]
            if not len(rows):
                continue
            predicted = torch.cat((places[image], sizes[image]), 1).movedim(1, -1)  # (anchors, H, W, 4)
            overlaps = _overlaps(predicted.unsqueeze(-2), rows[:, 1:])
            goal.found_scale[image][overlaps.max(-1).values > param.thresh] = 0
            for place, (label, *truth) in enumerate(rows.tolist()):
                centre, size = rows.new_tensor(truth[:2]), rows.new_tensor(truth[2:])
                column, row = ((centre * cells).long().clamp(min=0).minimum(cells.long() - 1)).tolist()
                shapes = anchors / cells if param.bias_match else sizes[image, :, :, row, column]
                at = torch.zeros_like(shapes)
                same = _overlaps(torch.cat((at, shapes), 1), torch.cat((at[0], size)))
                anchor = int(same.argmax())
                where = (image, anchor, row, column)
                inside = centre * cells - rows.new_tensor((column, row))
                goal.box[image, anchor, :, row, column] = torch.cat((inside, (size * cells / anchors[anchor]).log()))
                goal.box_scale[where] = param.coord_scale
                goal.found[where] = overlaps[anchor, row, column, place] if param.rescore else 1
                goal.found_scale[where] = param.object_scale
                goal.label[where] = self._class(label)
        return goal

    @property
    def _warms_up(self) -> bool:
        return self.training and self.context.iteration < WARM_UP // max(self.samples, 1)

    def _class(self, label: float) -> int:
        if not 0 <= int(label) < self.param.num_class:
            raise DataError(
                f'layer "{self.spec.name}": label {label:g} of "{self.spec.bottom_names[1]}" is outside '
                f"[0, {self.param.num_class}), its num_class; correct the labels"
            )
        return int(label)


def _overlaps(one: Tensor, other: Tensor) -> Tensor:
    """Return the intersection over union of boxes (…, 4): x and y of the centre, width, height."""
    low = torch.maximum(one[..., :2] - one[..., 2:] / 2, other[..., :2] - other[..., 2:] / 2)
    high = torch.minimum(one[..., :2] + one[..., 2:] / 2, other[..., :2] + other[..., 2:] / 2)
    common = (high - low).clamp(min=0).prod(-1)
    union: Tensor = one[..., 2:].prod(-1) + other[..., 2:].prod(-1) - common
    return common / union
