"""Correlation: the similarity of places of two feature maps at each displacement."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from bpt.config.proto import bpt_pb2 as pb
from bpt.graph.layer_spec import Arity, LayerShapes, LayerSpec, Shape
from bpt.nn.layers.axes import show_bottoms
from bpt.nn.layers.base import LAYERS, Family, Layer
from bpt.nn.pass_context import PassContext

FIELD = "correlation_param"


@LAYERS.register("Correlation")
class Correlation(Layer):
    """A channel for each displacement: the mean product of patches of two blobs ``(N, C, H, W)`` at that displacement.

    Patches are ``kernel_size`` (odd) wide, at a distance of ``stride_1``. They are moved in the second blob by each
    multiple of ``stride_2`` up to ``max_displacement``, row by row. Both blobs are padded with ``pad`` zeros.
    ``correlation_type: SUBTRACT`` takes the mean absolute difference instead. (Dosovitskiy et al., *FlowNet*, 2015, eq.
    1.)
    """

    arity = Arity(bottoms=(2, 2))
    within_batch = sample_independent = True
    family = Family.CONVOLUTION

    def __init__(self, spec: LayerSpec, context: PassContext) -> None:
        super().__init__(spec, context)
        self.param = spec.param.correlation_param
        self.subtracts = self.param.correlation_type == pb.CorrelationParameter.SUBTRACT

    @classmethod
    def infer(cls, spec: LayerSpec, bottoms: Sequence[Shape]) -> LayerShapes:
        param = spec.param.correlation_param
        if not param.kernel_size % 2:
            raise spec.error("needs an odd kernel_size", FIELD, "kernel_size")
        if not param.HasField("max_displacement"):
            raise spec.error("needs max_displacement", FIELD)
        if not param.stride_1 or not param.stride_2:
            raise spec.error("strides must be above 0", FIELD)
        for name in ("single_direction", "do_abs"):
            if getattr(param, name):
                raise spec.error(f"{name} is not supported: a Correlation covers all directions", FIELD, name)
        if len(bottoms[0]) != 4 or bottoms[0] != bottoms[1]:
            raise spec.error(f"needs two bottoms (N, C, H, W) of one shape: {show_bottoms(spec, bottoms)}", "bottom")
        border = 2 * param.max_displacement + param.kernel_size - 1
        places = tuple(-(-(cells + 2 * param.pad - border) // param.stride_1) for cells in bottoms[0][2:])
        if min(places) < 1:
            raise spec.error(
                f"kernel_size and max_displacement, {border + 1} cells, reach beyond the padded bottom: "
                f"{show_bottoms(spec, bottoms)}",
                FIELD,
            )
        return LayerShapes(((bottoms[0][0], (2 * _radius(param) + 1) ** 2, *places),))

    def forward(self, *bottoms: Tensor) -> Tensor:
        param = self.param
        one, other = (functional.pad(bottom, (param.pad,) * 4) for bottom in bottoms)
        (_, _, *places), *_ = self.infer(self.spec, [tuple(bottom.shape) for bottom in bottoms]).tops
        rows, columns = ((number - 1) * param.stride_1 + param.kernel_size for number in places)
        start = param.max_displacement
        steps = [step * param.stride_2 for step in range(-_radius(param), _radius(param) + 1)]
        mine, found = one[:, :, start : start + rows, start : start + columns], []
        for down in steps:
            for right in steps:
                theirs = other[:, :, start + down :, start + right :][:, :, :rows, :columns]
                values = (mine - theirs).abs() if self.subtracts else mine * theirs
                found.append(values.mean(1))
        top = torch.stack(found, 1)
        if param.kernel_size == param.stride_1 == 1:
            return top
        return functional.avg_pool2d(top, param.kernel_size, param.stride_1)


def _radius(param: pb.CorrelationParameter) -> int:
    return param.max_displacement // param.stride_2
