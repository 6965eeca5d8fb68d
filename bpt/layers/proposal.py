"""Proposal: the boxes that a region proposal network proposes."""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from bpt.context import PassContext
from bpt.graph.spec import Arity, LayerShapes, LayerSpec, Shape, count
from bpt.layers.axes import show_bottoms
from bpt.layers.base import LAYERS, Family, Layer

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
    ``max_rois``, which go on behind the ``pre_nms_topn`` best, not sorted, if too few boxes are apart; or
    ``base_size``, ``scale`` and ``ratio`` (lists), ``min_size``, ``nms_thresh``, ``post_nms_topn``.

    The graph knows the largest number of rows; a pass makes as many as there are.
    """

    arity = Arity(bottoms=(3, 3), tops=(1, 2))
    undivided = "how many boxes an image has depends on the data"
    rows_by_data = True
    within_batch = silent = True
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
        sizes = bottoms[2].reshape(len(bottoms[0]), -1)
        found = [
            self._of_image(image, *arguments)
            for image, arguments in enumerate(zip(bottoms[0], bottoms[1], sizes, strict=True))
        ]
        tops = tuple(torch.cat(parts) for parts in zip(*found, strict=True))
        return tops if len(self.spec.tops) == 2 else tops[0]

    def _of_image(self, image: int, scores: Tensor, moves: Tensor, size: Tensor) -> tuple[Tensor, Tensor]:
        """Rows and scores, the best first."""
        rules, number = self.rules, len(self.anchors)
        boxes = _moved(self._anchors_of(scores), moves.view(number, 4, *moves.shape[1:]).movedim(1, 3).reshape(-1, 4))
        limit = (size[:2].flip(0) - 1).repeat(2)
        boxes = boxes.minimum(limit).clamp(min=0)
        extent = boxes[:, 2:] - boxes[:, :2] + 1
        least = rules.least * (size[2:4].flip(0) if len(size) == 4 else size[2])
        large = (extent >= least).all(1).nonzero().squeeze(1)
        own = scores[number:].reshape(-1)[large]
        # Of equal scores the last one first, as in Caffe, which sorts pairs of score and place.
        order = len(own) - 1 - own.flip(0).argsort(descending=True, stable=True)
        order = torch.cat((order[: rules.before], self._rest(own, order)))
        kept = order[apart(boxes[large][order], rules.overlap, rules.most)]
        chosen = boxes[large][kept]
        return torch.cat((torch.full_like(chosen[:, :1], image), chosen), 1), own[kept].unsqueeze(1)

    def _rest(self, scores: Tensor, order: Tensor) -> Tensor:
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
        rows, columns = (torch.arange(cells, device=scores.device) * self.rules.stride for cells in scores.shape[1:])
        shifts = torch.stack(torch.meshgrid(columns, rows, indexing="xy"), 2).repeat(1, 1, 2)
        return (self.anchors.to(scores)[:, None, None] + shifts).reshape(-1, 4)


def _moved(boxes: Tensor, moves: Tensor) -> Tensor:
    """Boxes (K, 4) moved in units of their sizes and scaled by powers of e (Girshick et al., *R-CNN*, 2014, C)."""
    sizes = boxes[:, 2:] - boxes[:, :2] + 1
    centres = boxes[:, :2] + sizes / 2 + moves[:, :2] * sizes
    half = moves[:, 2:].exp() * sizes / 2
    return torch.cat((centres - half, centres + half), 1)


def apart(boxes: Tensor, overlap: float, most: int) -> Tensor:
    """Of boxes (K, 4), the best first, at most ``most`` that overlap no better one by more (intersection over union).

    Corners are pixels, both of which are in. Returns ascending indices.
    """
    kept: list[int] = []
    areas = (boxes[:, 2:] - boxes[:, :2] + 1).prod(1)
    left = torch.arange(len(boxes), device=boxes.device)
    while len(left) and len(kept) < most:
        best, left = int(left[0]), left[1:]
        kept.append(best)
        upper, lower = boxes[left, :2].maximum(boxes[best, :2]), boxes[left, 2:].minimum(boxes[best, 2:])
        common = (lower - upper + 1).clamp(min=0).prod(1)
        left = left[common / (areas[left] + areas[best] - common) <= overlap]
    return torch.tensor(kept, dtype=torch.long, device=boxes.device)


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
    goes_on: bool

    @classmethod
    def read(cls, spec: LayerSpec) -> _Rules:
        """Raises a LayerError if the fields are of both families, or one makes no sense."""
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
