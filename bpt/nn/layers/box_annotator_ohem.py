"""BoxAnnotatorOHEM: selects the labels of the regions that are hardest to classify."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from bpt.graph.layer_spec import Arity, LayerShapes, LayerSpec, Shape, count
from bpt.nn.layers.axes import show_bottoms
from bpt.nn.layers.base import ALL_BOTTOMS, LAYERS, Family, Layer
from bpt.nn.pass_context import PassContext

FIELD = "box_annotator_ohem_param"


@LAYERS.register("BoxAnnotatorOHEM")
class BoxAnnotatorOHEM(Layer):
    """Labels and weights, kept only for the ``roi_per_img`` regions of each image with the largest losses.

    Bottoms: regions ``(R, 5)``, whose column 0 is the image; their losses and their labels, R of each; weights of their
    boxes ``(R, C)``. Tops: labels ``(R, 1, 1, 1)``, ``ignore_label`` (-1) for the others, and weights ``(R, C, 1, 1)``,
    0 for the others. The bottoms get no diff. (From R-FCN's Caffe; Shrivastava et al., *Training Region-based Object
    Detectors with Online Hard Example Mining*, 2016.)
    """

    arity = Arity(bottoms=(4, 4), tops=(2, 2))
    whole_batch_only = "its regions are of any images of the batch"
    within_batch = no_collectives = True
    family = Family.LOSS
    settings = FIELD
    bottoms_without_diff = ALL_BOTTOMS

    def __init__(self, spec: LayerSpec, context: PassContext) -> None:
        super().__init__(spec, context)
        param = spec.param.box_annotator_ohem_param
        self.number, self.ignore_label = param.roi_per_img, param.ignore_label

    @classmethod
    def infer(cls, spec: LayerSpec, bottoms: Sequence[Shape]) -> LayerShapes:
        if not spec.param.box_annotator_ohem_param.roi_per_img:
            raise spec.error("needs roi_per_img, at least 1", FIELD, "roi_per_img")
        regions, losses, labels, weights = bottoms
        number = regions[0] if regions else 0
        fits = count(regions) == 5 * number and count(losses) == count(labels) == number
        if not regions or not fits or len(weights) < 2 or weights[0] != number or count(weights[2:]) != 1:
            raise spec.error(
                f"needs regions (R, 5), R losses, R labels and weights (R, C): {show_bottoms(spec, bottoms)}", "bottom"
            )
        return LayerShapes(((number, 1, 1, 1), (number, weights[1], 1, 1)))

    @torch.no_grad()
    def forward(self, *bottoms: Tensor) -> tuple[Tensor, ...]:
        images, losses = bottoms[0].reshape(-1, 5)[:, 0].long(), bottoms[1].flatten()
        hardest = losses.argsort(descending=True, stable=True)
        by_image = hardest[images[hardest].argsort(stable=True)]  # image by image, the hardest first
        own = images[by_image]
        place = torch.arange(len(own), device=own.device) - torch.searchsorted(own, own)
        chosen = torch.zeros_like(images, dtype=torch.bool)
        chosen[by_image] = place < self.number
        chosen = chosen.view(-1, 1, 1, 1)
        labels = torch.where(chosen, bottoms[2].reshape(-1, 1, 1, 1), self.ignore_label)
        weights = bottoms[3].reshape(*bottoms[3].shape[:2], 1, 1)
        return labels, torch.where(chosen, weights, 0)
