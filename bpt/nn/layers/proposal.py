"""Proposal: the boxes that a region proposal network proposes."""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from bpt.data.detection.suppression import best_of_equals_last, non_maximum_suppression
from bpt.graph.layer_spec import Arity, LayerShapes, LayerSpec, Shape, count
from bpt.nn.layers.axes import show_bottoms
from bpt.nn.layers.base import LAYERS, Family, Layer
from bpt.nn.layers.detection_operators import propose_in_one
from bpt.nn.layers.graph_tracing import is_exported
from bpt.nn.pass_context import PassContext

FIELD = "proposal_param"
FIRST = ("anchor_base_size", "anchor_scale", "anchor_ratio", "max_rois", "rpn_min_size", "rpn_nms_thresh")
SECOND = ("base_size", "min_size", "ratio", "scale", "post_nms_topn", "nms_thresh")


@LAYERS.register("Proposal")
class Proposal(Layer):
    """The best boxes of each image that do not overlap a better one too much: rows (image, x1, y1, x2, y2).

    Bottoms: scores ``(N, 2 · anchors, H, W)``, those of objects behind those of the background; what each anchor's box
    is to be moved and scaled by, ``(N, 4 · anchors, H, W)``; and for each image height, width and scale, ``(N, 3)``, or
    both scales, ``(N, 4)``. Anchors stand ``feat_stride`` pixels apart, in each ratio in each scale of a square of the
    base size. Boxes are clipped to the image; those smaller than the least size, times the scale, are dropped; of the
    ``pre_nms_topn`` best those are dropped that overlap a better one by more than the threshold. A second top has the
    scores. It hands no diff back. (Ren et al., *Faster R-CNN*, 2015, 3.1.)

    Two families of Caffe's forks name these fields unlike: ``anchor_base_size``, ``anchor_scale`` and ``anchor_ratio``
    (3: scales 8, 16 and 32, ratios 0.5, 1 and 2; else 32 and 1 alone), ``rpn_min_size``, ``rpn_nms_thresh``,
    ``max_rois``, which go on behind the ``pre_nms_topn`` best, not sorted, if too few boxes are apart, and never drop
    an image's last box (last anchor, last place), however small it is; or ``base_size``, ``scale`` and ``ratio``
    (lists), ``min_size``, ``nms_thresh``, ``post_nms_topn``.

    The graph knows the largest number of rows; a pass makes as many as there are. An exported program of the first
    family does not go on behind the ``pre_nms_topn`` best.
    """

    arity = Arity(bottoms=(3, 3), tops=(1, 2))
    whole_batch_only = "how many boxes an image has depends on the data"
    rows_by_data = True
    within_batch = no_collectives = True
    family = Family.OTHER

    def __init__(self, spec: LayerSpec, context: PassContext) -> None:
        super().__init__(spec, context)
        self.rules = _Rules.read(spec)
        self.register_buffer("anchors", torch.tensor(self.rules.anchors()), persistent=False)
        self.anchors: Tensor

    @classmethod
    def infer(cls, spec: LayerSpec, bottoms: Sequence[Shape]) -> LayerShapes:
        scores, moves, sizes = bottoms
        rules = _Rules.read(spec)
        number = len(rules.ratios) * len(rules.scales)
        images = scores[0] if scores else 0
        wanted = [(images, 2 * number, *scores[2:]), (images, 4 * number, *scores[2:])]
        per_image = count(sizes) // max(images, 1)
        if len(scores) != 4 or [scores, moves] != wanted or per_image not in (3, 4) or count(sizes) % per_image:
            raise spec.error(
                f"needs, for {number} anchors, scores (N, {2 * number}, H, W), boxes (N, {4 * number}, H, W) and image "
                f"sizes (N, 3) or (N, 4): {show_bottoms(spec, bottoms)}",
                "bottom",
            )
        rows = images * rules.most
        return LayerShapes(((rows, 5), (rows, 1))[: len(spec.tops)])

    @classmethod
    def allow_force_backward(cls, bottom: int) -> bool:
        return False

    @torch.no_grad()
    def forward(self, *bottoms: Tensor) -> Tensor | tuple[Tensor, ...]:
        boxes, scores = self._candidates(*bottoms)
        if is_exported():
            image, place = propose_in_one(boxes, scores, self.rules.before, self.rules.overlap, self.rules.most).unbind(
                1
            )
        else:
            chosen = [self._chosen(*candidates) for candidates in zip(boxes, scores, strict=True)]
            numbers = torch.tensor([len(own) for own in chosen], device=boxes.device)
            image, place = torch.arange(len(chosen), device=boxes.device).repeat_interleave(numbers), torch.cat(chosen)
        rows = torch.cat((image.to(boxes).unsqueeze(1), boxes[image, place]), 1)
        return (rows, scores[image, place].unsqueeze(1)) if len(self.spec.tops) == 2 else rows

    def _candidates(self, scores: Tensor, moves: Tensor, sizes: Tensor) -> tuple[Tensor, Tensor]:
        """Return all boxes (N, K, 4), clipped, and their scores (N, K); -inf for boxes that are too small."""
        images, number = scores.shape[0], len(self.anchors)
        moves = moves.reshape(images, number, 4, *moves.shape[2:]).movedim(2, 4).reshape(images, -1, 4)
        sizes = sizes.reshape(images, -1)
        limits = (sizes[:, :2].flip(1) - 1).repeat(1, 2).unsqueeze(1)
        boxes = _moved(self._anchors_of(scores), moves).minimum(limits).clamp(min=0)
        least = self.rules.least * (sizes[:, 2:4].flip(1) if sizes.shape[1] == 4 else sizes[:, 2:3])
        large = (boxes[..., 2:] - boxes[..., :2] + 1 >= least.unsqueeze(1)).all(2)
        if self.rules.spares_last:
            large = torch.cat((large[:, :-1], torch.ones_like(large[:, -1:])), 1)
        return boxes, torch.where(large, scores[:, number:].reshape(images, -1), -math.inf)

    def _chosen(self, boxes: Tensor, scores: Tensor) -> Tensor:
        """Return which boxes of one image are proposed, the best first."""
        rules = self.rules
        order = best_of_equals_last(scores)
        order = torch.cat((order[: rules.before], self._rest(order)))
        return order[non_maximum_suppression(boxes[order], rules.overlap, rules.most)]

    def _rest(self, order: Tensor) -> Tensor:
        """What the first family's Caffe goes on with: what its partial sort leaves, each time the least so far."""
        number = self.rules.before
        if not self.rules.goes_on or len(order) <= number:
            return order[:0]
        places = sorted(range(len(order)), key=order.tolist().__getitem__)  # of each box, from the best one on
        heap = [-place for place in places[:number]]
        heapq.heapify(heap)
        return order[[-heapq.heappushpop(heap, -place) for place in places[number:]]]

    def _anchors_of(self, scores: Tensor) -> Tensor:
        """Of all places of a feature map: (anchors · H · W, 4)."""
        rows, columns = (torch.arange(cells, device=scores.device) * self.rules.stride for cells in scores.shape[2:])
        shifts = torch.stack(torch.meshgrid(columns, rows, indexing="xy"), 2).repeat(1, 1, 2)
        return (self.anchors.to(scores)[:, None, None] + shifts).reshape(-1, 4)


def _moved(boxes: Tensor, moves: Tensor) -> Tensor:
    """Boxes (K, 4), for each image moved in units of their sizes and scaled by powers of e, (N, K, 4).

    (Girshick et al., *R-CNN*, 2014, C.)
    """
    sizes = boxes[:, 2:] - boxes[:, :2] + 1
    centres = boxes[:, :2] + sizes / 2 + moves[..., :2] * sizes
    half = moves[..., 2:].exp() * sizes / 2
    return torch.cat((centres - half, centres + half), 2)


class _Rules(NamedTuple):
    """``proposal_param``, whichever names it uses."""

    stride: float
    base: float
    scales: tuple[float, ...]
    ratios: tuple[float, ...]
    least: float
    before: int
    overlap: float
    most: int
    first_family: bool

    @property
    def goes_on(self) -> bool:
        """Whether the boxes behind the ``pre_nms_topn`` best are candidates, too."""
        return self.first_family

    @property
    def spares_last(self) -> bool:
        """Whether the last box of an image, that of the last anchor at the last place, may be of any size.

        The loop of the first family's Caffe that drops small boxes ends one box early.
        """
        return self.first_family

    @classmethod
    def read(cls, spec: LayerSpec) -> _Rules:
        """Raise a LayerError if the fields are of both families, or one makes no sense."""
        param = spec.param.proposal_param
        given = {field.name for field, _ in param.ListFields()}
        first, second = ([name for name in names if name in given] for names in (FIRST, SECOND))
        if first and second:
            raise spec.error(
                f"{first[0]} and {second[0]} are of different Caffes; take out the fields of one", FIELD, second[0]
            )
        if second:
            scales, ratios = tuple(param.scale) or (8, 16, 32), tuple(param.ratio) or (0.5, 1, 2)
            numbers = param.base_size, scales, ratios, param.min_size
            rules = cls(param.feat_stride, *numbers, param.pre_nms_topn, param.nms_thresh, param.post_nms_topn, False)
        else:
            scales = (8, 16, 32) if param.anchor_scale == 3 else (32,)
            ratios = (0.5, 1, 2) if param.anchor_ratio == 3 else (1,)
            numbers = param.anchor_base_size, scales, ratios, param.rpn_min_size
            rules = cls(param.feat_stride, *numbers, param.pre_nms_topn, param.rpn_nms_thresh, param.max_rois, True)
        if min(rules.stride, rules.base, *rules.scales, *rules.ratios, rules.before, rules.most) <= 0:
            raise spec.error("strides, sizes, scales, ratios and numbers of boxes must be above 0", FIELD)
        return rules

    def anchors(self) -> list[list[float]]:
        """Corners of each ratio's and each scale's anchor at the first place."""
        centre, found = (self.base - 1) / 2, []
        for ratio in self.ratios:
            width = math.floor(math.sqrt(self.base**2 / ratio) + 0.5)
            height = math.floor(width * ratio + 0.5)
            for scale in self.scales:
                half_width, half_height = (width * scale - 1) / 2, (height * scale - 1) / 2
                found.append([centre - half_width, centre - half_height, centre + half_width, centre + half_height])
        return found
