"""SpatialTransformer: turns, shifts and scales an image as another blob says."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from bpt.graph.layer_spec import Arity, LayerShapes, LayerSpec, Shape, count
from bpt.nn.layers.axes import show_bottoms
from bpt.nn.layers.base import LAYERS, Family, Layer
from bpt.nn.pass_context import PassContext

FIELD = "st_param"
NUMBERS = tuple(f"theta_{row}_{column}" for row in (1, 2) for column in (1, 2, 3))


@LAYERS.register("SpatialTransformer")
class SpatialTransformer(Layer):
    """The first bottom ``(N, C, H, W)``, interpolated where ``θ`` maps each place of the top.

    The second bottom ``(N, 6)`` holds ``θ``: 2 × 3 numbers for each sample, row by row. It omits the numbers that
    ``theta_i_j`` fix. Rows and columns run from -1 on, in units of half the size of the top. ``θ (row, column, 1)`` is
    then a row and a column of the bottom in the same units. Outside the bottom, values are 0. The top has ``output_H``
    rows and ``output_W`` columns; the defaults are those of the bottom. With ``to_compute_dU: false`` the first bottom
    gets no diff. (Jaderberg et al., *Spatial Transformer Networks*, 2015, eq. 1 and 5.)
    """

    arity = Arity(bottoms=(2, 2))
    within_batch = sample_independent = True
    family = Family.POOLING
    flops_per_top = 8  # 4 products and sums

    def __init__(self, spec: LayerSpec, context: PassContext) -> None:
        super().__init__(spec, context)
        self.param = spec.param.st_param

    @classmethod
    def infer(cls, spec: LayerSpec, bottoms: Sequence[Shape]) -> LayerShapes:
        param, (images, theta) = spec.param.st_param, bottoms
        for field, only in (("transform_type", "affine"), ("sampler_type", "bilinear")):
            if getattr(param, field) != only:
                raise spec.error(f'{field} must be "{only}", found "{getattr(param, field)}"', FIELD, field)
        left = sum(not param.HasField(name) for name in NUMBERS)
        if len(images) != 4 or theta[:1] != images[:1] or count(theta[1:]) != left:
            raise spec.error(
                f"needs images (N, C, H, W) and {left} numbers for each, those of θ that no theta_i_j fixes: "
                f"{show_bottoms(spec, bottoms)}",
                "bottom",
            )
        sizes = (param.output_H or images[2], param.output_W or images[3])
        if min(sizes) < 1:
            raise spec.error("output_H and output_W must be at least 1", FIELD)
        return LayerShapes(((*images[:2], *sizes),))

    def forward(self, *bottoms: Tensor) -> Tensor:
        images = bottoms[0] if self.param.to_compute_dU else bottoms[0].detach()
        old, new = images.shape[2:], (self.param.output_H or images.shape[2], self.param.output_W or images.shape[3])
        rows, columns = (torch.arange(cells, device=images.device).to(images) * (2 / cells) - 1 for cells in new)
        down, right = torch.meshgrid(rows, columns, indexing="ij")
        places = torch.stack((down, right, torch.ones_like(down)), 2)
        led = torch.einsum("hwk,nik->nhwi", places, self._theta(bottoms[1]))
        # torch counts from the corners of the first pixels, and names columns first.
        grid = torch.stack((led[..., 1] + 1 / old[1], led[..., 0] + 1 / old[0]), 3)
        return functional.grid_sample(images, grid, padding_mode="zeros", align_corners=False)

    def _theta(self, given: Tensor) -> Tensor:
        """Return the complete transforms (N, 2, 3)."""
        given = given.flatten(1)
        numbers, place = [], 0
        for name in NUMBERS:
            if self.param.HasField(name):
                numbers.append(given.new_full((len(given),), getattr(self.param, name)))
            else:
                numbers.append(given[:, place])
                place += 1
        return torch.stack(numbers, 1).view(-1, 2, 3)
