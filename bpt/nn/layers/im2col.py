"""Im2col: the windows of a convolution, written as channels."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from torch import Tensor
from torch.nn import functional

from bpt.graph.layer_spec import LayerShapes, LayerSpec, Shape, count
from bpt.nn.layers.axes import canonical_axis
from bpt.nn.layers.base import LAYERS, Family, Layer
from bpt.nn.layers.convolution import channels_of_samples, check_bottoms, too_small
from bpt.nn.layers.windows import FIELD, ConvolutionWindow
from bpt.nn.pass_context import PassContext


@LAYERS.register("Im2col")
class Im2col(Layer):
    """One channel for each channel and each element of the window; pads are 0.

    Bottom ``(…, channels, spatial axes …)``, with the channels at ``axis``. The top has ``channels · kernel`` channels:
    the elements of channel 0's window in row-major order, then those of channel 1, and so on. Its places are those of a
    Convolution with this ``convolution_param``, of which only the window is read.
    """

    sample_independent = True
    family = Family.CONVOLUTION
    settings = "convolution_param"

    def __init__(self, spec: LayerSpec, context: PassContext) -> None:
        super().__init__(spec, context)
        self.window = ConvolutionWindow.read(spec)
        self.axis = spec.param.convolution_param.axis

    @classmethod
    def infer(cls, spec: LayerSpec, bottoms: Sequence[Shape]) -> LayerShapes:
        bottom = bottoms[0]
        axis = canonical_axis(spec, spec.param.convolution_param.axis, bottom, FIELD, "axis")
        window = ConvolutionWindow.read(spec).expand(spec, bottom, axis + 1)
        check_bottoms(spec, bottoms, axis)
        places = window.places(bottom[axis + 1 :])
        if min(places) < 1:
            raise spec.error(too_small(window, bottom), FIELD, "kernel_size")
        return LayerShapes(((*bottom[:axis], bottom[axis] * count(window.kernel), *places),))

    @classmethod
    def mixes_samples(cls, spec: LayerSpec, bottoms: Sequence[Shape]) -> str:
        return channels_of_samples(spec, bottoms[0]) or super().mixes_samples(spec, bottoms)

    def forward(self, *bottoms: Tensor) -> Tensor:
        x = bottoms[0]
        axis = self.axis % x.dim()
        axes = x.dim() - axis - 1
        window = self.window.expand(self.spec, tuple(x.shape), axis + 1)
        x = functional.pad(x, list(chain.from_iterable((pad, pad) for pad in reversed(window.pad))))
        for spatial in range(axes):  # each one leaves its places where it was, and its windows at the end
            x = x.unfold(axis + 1 + spatial, window.extent[spatial], window.stride[spatial])
            x = x[..., :: window.dilation[spatial]]
        places = range(axis + 1, axis + 1 + axes)
        taps = range(axis + 1 + axes, axis + 1 + 2 * axes)
        return x.permute(*range(axis + 1), *taps, *places).flatten(axis, axis + axes)
