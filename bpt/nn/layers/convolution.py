"""Convolution over up to three spatial axes, Deconvolution, its transpose, and Im2col, its windows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from bpt.config.precision import narrowed
from bpt.config.proto import bpt_pb2 as pb
from bpt.graph.layer_spec import Arity, Autocast, LayerShapes, LayerSpec, ParamSpec, Shape, count
from bpt.nn.kernels.algorithm import Kernels
from bpt.nn.kernels.convolution_algorithms import ConvolutionSteps, can_choose, convolution_kernels, convolve
from bpt.nn.kernels.one_element_filters import faster_dilation
from bpt.nn.kernels.packed import PackedConvolution, pack
from bpt.nn.kernels.recording import is_compiling_or_tracing
from bpt.nn.layers.axes import canonical_axis
from bpt.nn.layers.base import LAYERS, Family, Layer
from bpt.nn.layers.channel_affine import ChannelAffine, Weights
from bpt.nn.layers.windows import FIELD, ConvolutionWindow, kernel_in_words, steps_in_words
from bpt.nn.pass_context import PassContext


class BaseConvolution(Layer):
    """The common base of Convolution and Deconvolution: all of ``convolution_param``, and the filters."""

    arity = Arity(bottoms=(1, None), tops=(1, None), as_many_tops_as_bottoms=True)
    transposed: ClassVar[bool] = False  # maps places to the elements under the windows, like a convolution's gradient
    sample_independent = multiplies = top_is_free = True
    bias_blob = 1
    family = Family.CONVOLUTION
    settings = "convolution_param"

    def __init__(self, spec: LayerSpec, context: PassContext) -> None:
        super().__init__(spec, context)
        param = spec.param.convolution_param
        self.window = ConvolutionWindow.read(spec)
        self.group = param.group
        self.axis = param.axis
        self.bias_term = param.bias_term

    @classmethod
    def in_words(cls, layer: pb.LayerParameter, axes: int) -> Sequence[str]:
        param = layer.convolution_param
        outputs, groups = str(param.num_output or ""), f"group {param.group}" if param.group > 1 else ""
        return [kernel_in_words(param, axes), outputs, *steps_in_words(param), groups]

    @classmethod
    def infer(cls, spec: LayerSpec, bottoms: Sequence[Shape]) -> LayerShapes:
        param = spec.param.convolution_param
        bottom = bottoms[0]
        axis = canonical_axis(spec, param.axis, bottom, FIELD, "axis")
        window = ConvolutionWindow.read(spec).expand(spec, bottom, axis + 1)
        check_bottoms(spec, bottoms, axis)
        _check_channels(spec, bottom, axis)
        sizes = bottom[axis + 1 :]
        places = window.spread(sizes) if cls.transposed else window.places(sizes)
        if min(places) < 1:
            raise spec.error(cls._too_small(window, bottom), FIELD, "kernel_size")
        outputs, inputs = param.num_output, bottom[axis]
        ends = (inputs, outputs // param.group) if cls.transposed else (outputs, inputs // param.group)
        params = [ParamSpec((*ends, *window.kernel), param.weight_filler)]
        if param.bias_term:
            params.append(ParamSpec((outputs,), param.bias_filler))
        top = (*bottom[:axis], outputs, *places)
        return LayerShapes((top,) * len(bottoms), tuple(params))

    @classmethod
    def _too_small(cls, window: ConvolutionWindow, bottom: Shape) -> str:
        """Return why the top would have no places; empty if it has some."""
        if cls.transposed:
            return f"pad {window.pad} takes away all that the windows of a bottom of shape {bottom} reach over"
        return too_small(window, bottom)

    @classmethod
    def flops(cls, spec: LayerSpec, bottoms: Sequence[Shape], tops: Sequence[Shape]) -> int:
        param = spec.param.convolution_param
        weights = cls.infer(spec, bottoms).params[0].shape
        windows = sum(map(count, bottoms if cls.transposed else tops))
        return 2 * windows * count(weights[1:]) + param.bias_term * sum(map(count, tops))

    @classmethod
    def mixes_samples(cls, spec: LayerSpec, bottoms: Sequence[Shape]) -> str:
        return channels_of_samples(spec, bottoms[0])

    def forward(self, *bottoms: Tensor) -> Tensor | tuple[Tensor, ...]:
        weight, bias = self.blob(0), self.blob(1) if self.bias_term else None
        tops = tuple(self._convolve(bottom, weight, bias) for bottom in bottoms)
        return tops[0] if len(tops) == 1 else tops

    def _convolve(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        window = self.window
        axis = self.axis % x.dim()
        leading = x.shape[:axis]
        if axis != 1:  # torch requires exactly one axis before the channels
            x = x.flatten(0, axis - 1) if axis else x.unsqueeze(0)
        rest = (0,) * (x.dim() - 2)  # explicit, since ONNX would use a single number for all axes
        weight, bias = narrowed(weight, x), None if bias is None else narrowed(bias, x)
        dilation: Sequence[int] = window.dilation
        if not self.transposed:
            dilation = faster_dilation(x, weight, window.stride, dilation, self.group)
        if self.algorithms and can_choose(x, weight) and not is_compiling_or_tracing():
            steps = ConvolutionSteps(window.stride, window.pad, dilation, self.group)
            y = convolve(x, weight, bias, steps, self.algorithms)
        else:
            slide = window.stride, window.pad, dilation
            y = torch.convolution(x, weight, bias, *slide, self.transposed, rest, self.group)
        return y if axis == 1 else y.reshape(*leading, *y.shape[1:])


@LAYERS.register("Convolution")
class Convolution(BaseConvolution):
    """``num_output`` filters that slide over each bottom; all bottoms share the filters.

    Bottom ``(…, channels, spatial axes …)``, with the channels at ``axis``. The top has ``num_output`` channels and
    ``(in + 2·pad - extent) // stride + 1`` places on each spatial axis. Blobs: filters ``(num_output, channels / group,
    kernel …)``, and ``(num_output,)`` if ``bias_term``. ``engine`` and ``force_nd_im2col`` choose among Caffe's
    implementations and change nothing here.
    """

    chooses_kernels = True

    def __init__(self, spec: LayerSpec, context: PassContext) -> None:
        super().__init__(spec, context)
        self.folds_affine = len(spec.bottoms) == self.axis == 1

    def folded(self, affine: ChannelAffine) -> Weights:
        return affine.applied_to(self.blob(0), self.blob(1) if self.bias_term else None)

    def forward_by(self, weights: Weights, bottom: Tensor) -> Tensor:
        weight, bias = weights
        assert weight is not None
        return self._convolve(bottom, weight, bias)

    def kernels(self, bottom: Tensor) -> Kernels:
        if self.axis != 1:
            return {}
        weight, bias = self.blob(0).detach(), self.blob(1).detach() if self.bias_term else None
        window = self.window
        dilation = faster_dilation(bottom, weight, window.stride, window.dilation, self.group)
        return convolution_kernels(
            bottom, weight, bias, ConvolutionSteps(window.stride, window.pad, dilation, self.group)
        )

    def packed(self, weights: Weights, bottom: Tensor) -> PackedConvolution | None:
        """Return a faster ``forward_by`` these weights for bottoms like this one; ``None`` if there is none."""
        weight, bias = weights
        assert weight is not None
        window = self.window
        return pack(bottom, weight, bias, window.stride, window.pad, window.dilation, self.group)


def check_bottoms(spec: LayerSpec, bottoms: Sequence[Shape], axis: int) -> None:
    """Refuse bottoms of several shapes, and those with less than 1 or more than 3 axes after ``axis``."""
    bottom = bottoms[0]
    for position, other in enumerate(bottoms):
        if other != bottom:
            raise spec.error(
                f'all bottoms must have one shape: "{spec.bottoms[0]}" has {bottom}, '
                f'"{spec.bottoms[position]}" {other}',
                "bottom",
                position,
            )
    if not 1 <= len(bottom) - axis - 1 <= 3:
        raise spec.error(
            f"needs 1 to 3 spatial axes after the channels (axis {axis}), "
            f"a bottom of shape {bottom} has {len(bottom) - axis - 1}",
            "bottom",
        )


def too_small(window: ConvolutionWindow, bottom: Shape) -> str:
    """Return why no window fits on ``bottom``; empty if one does."""
    return (
        f"a kernel that reaches over {window.extent} is bigger than the bottom of shape {bottom} with pad {window.pad}"
    )


def channels_of_samples(spec: LayerSpec, bottom: Shape) -> str:
    """Return why samples cannot be on different ranks if axis 0 holds channels; empty if it does not."""
    axis = canonical_axis(spec, spec.param.convolution_param.axis, bottom, FIELD, "axis")
    return "" if axis else "it takes axis 0, the samples, for channels"


def _check_channels(spec: LayerSpec, bottom: Shape, axis: int) -> None:
    param = spec.param.convolution_param
    if not param.num_output:
        raise spec.error("needs num_output, at least 1", FIELD, "num_output")
    if not param.group:
        raise spec.error("group must be at least 1, not 0", FIELD, "group")
    if bottom[axis] % param.group:
        raise spec.error(
            f"the {bottom[axis]} channels of a bottom of shape {bottom} do not divide into {param.group} groups",
            FIELD,
            "group",
        )
    if param.num_output % param.group:
        raise spec.error(f"num_output {param.num_output} does not divide into {param.group} groups", FIELD, "group")


@LAYERS.register("Deconvolution")
class Deconvolution(BaseConvolution):
    """A transposed Convolution: each element of a bottom adds the filters, times itself, to the top.

    So forward is the backward pass of a Convolution from the top to the bottom. The places on a spatial axis are
    ``stride · (in - 1) + extent - 2·pad``. Blobs: filters ``(channels, num_output / group, kernel …)``, and
    ``(num_output,)`` if ``bias_term``. A filler reads the axes of the filters as it does for all layers, so its
    ``FAN_IN`` is ``num_output / group · kernel``. Everything else is as in Convolution.
    """

    transposed = True


@LAYERS.register("DepthwiseConvolution")
class DepthwiseConvolution(Convolution):
    """A Convolution with the same ``convolution_param`` and blobs; torch finds the fast algorithm by itself.

    Nets set ``group`` to the number of channels. The layer does not set it: without it there is one group, as in
    Convolution.
    """

    multiplies = False  # its filters see one channel each: too little for a product of matrices
    numbers = Autocast.WIDEST


@LAYERS.register("ConvolutionDepthwise")
class ConvolutionDepthwise(DepthwiseConvolution):
    """A DepthwiseConvolution whose ``group`` is ``num_output``, the number of channels, whatever its text says.

    From another fork (Zhang et al., *ShuffleNet*, 2018, whose nets use it).
    """

    def __init__(self, spec: LayerSpec, context: PassContext) -> None:
        super().__init__(_by_channel(spec), context)

    @classmethod
    def infer(cls, spec: LayerSpec, bottoms: Sequence[Shape]) -> LayerShapes:
        return super().infer(_by_channel(spec), bottoms)


def _by_channel(spec: LayerSpec) -> LayerSpec:
    param = pb.LayerParameter()
    param.CopyFrom(spec.param)
    param.convolution_param.group = param.convolution_param.num_output
    return replace(spec, param=param)


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
        for spatial in range(axes):  # unfold puts the places of an axis at its position, and its windows at the end
            x = x.unfold(axis + 1 + spatial, window.extent[spatial], window.stride[spatial])
            x = x[..., :: window.dilation[spatial]]
        places = range(axis + 1, axis + 1 + axes)
        taps = range(axis + 1 + axes, axis + 1 + 2 * axes)
        return x.permute(*range(axis + 1), *taps, *places).flatten(axis, axis + axes)
