"""Scale and Bias: factors and summands along some axes of a blob."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from bpt.config.precision import narrowed
from bpt.config.proto import bpt_pb2 as pb
from bpt.graph.layer_spec import Arity, Autocast, LayerShapes, LayerSpec, ParamSpec, Shape, count
from bpt.nn.kernels import by_channel
from bpt.nn.kernels.channels_last import is_channels_last
from bpt.nn.layers.axes import canonical_axis
from bpt.nn.layers.base import LAYERS, Family, Layer, setting
from bpt.nn.layers.channel_affine import ChannelAffine


def coefficient_shape(spec: LayerSpec, bottoms: Sequence[Shape], field: str) -> Shape:
    """Return the shape of the coefficients.

    It is the second bottom's, or that of ``num_axes`` axes of the first bottom from ``axis`` on.

    Args:
        field: ``"scale_param"`` or ``"bias_param"``, which hold ``axis`` and ``num_axes``. With a second bottom,
            ``num_axes`` is ignored, as in Caffe.

    Raises:
        LayerError: they reach over the end of the first bottom, or its axes have other sizes.
    """
    param = getattr(spec.param, field)
    bottom = bottoms[0]
    if len(bottoms) == 2:
        given = bottoms[1]
        axis = canonical_axis(spec, param.axis, bottom, field, "axis") if given else 0
        if bottom[axis : axis + len(given)] != given:
            raise spec.error(
                f'bottom "{spec.bottoms[1]}" of shape {given} does not fit bottom "{spec.bottoms[0]}" '
                f"of shape {bottom} from axis {axis} on",
                "bottom",
                1,
            )
        return given
    axis = canonical_axis(spec, param.axis, bottom, field, "axis")
    if param.num_axes < -1:
        raise spec.error(
            f"num_axes must be at least 0, or -1 for all from axis on; not {param.num_axes}", field, "num_axes"
        )
    end = len(bottom) if param.num_axes == -1 else axis + param.num_axes
    if end > len(bottom):
        raise spec.error(
            f"num_axes {param.num_axes} from axis {axis} on reaches over the end of a bottom of shape {bottom}",
            field,
            "num_axes",
        )
    return bottom[axis:end]


def coefficients_mix_samples(spec: LayerSpec, bottoms: Sequence[Shape], field: str, bias_term: bool = False) -> str:
    """Return the answer of ``Layer.mixes_samples`` for a layer with coefficients.

    Args:
        field: ``"scale_param"`` or ``"bias_param"``.
        bias_term: whether a blob of the coefficients' shape is learned, also where there is a second bottom.
    """
    shape = coefficient_shape(spec, bottoms, field)
    given = len(bottoms) == 2
    sample_independent = (
        bool(shape) and canonical_axis(spec, getattr(spec.param, field).axis, bottoms[0], field, "axis") == 0
    )
    if given and not sample_independent:
        return f'bottom "{spec.bottom_names[1]}" {shape} has no axis for the samples'
    if sample_independent and (bias_term or not given):
        return "it learns coefficients for each sample (axis 0)"
    return ""


def spread(coefficients: Tensor, x: Tensor, axis: int) -> Tensor:
    """Return ``coefficients`` in the number type of ``x``, with axes of 1 at the end, to broadcast from ``axis`` on."""
    coefficients = narrowed(coefficients, x)
    if not coefficients.dim():
        return coefficients
    behind = x.dim() - axis % x.dim() - coefficients.dim()
    return coefficients.reshape(*coefficients.shape, *(1,) * behind)


FIELD = "scale_param"


@LAYERS.register("Scale")
class Scale(Layer):
    """The first bottom times factors for ``num_axes`` of its axes from ``axis`` on.

    The factors are the second bottom, or else the first blob, which starts at 1. Under ``bias_term`` a blob of the same
    shape, which starts at 0, is added. The top has the first bottom's shape.
    """

    numbers = Autocast.WIDEST
    arity = Arity(bottoms=(1, 2))
    sample_independent = top_is_free = True
    family = Family.NORM
    axis = setting(int, "scale_param.axis")
    bias_term = setting(bool, "scale_param.bias_term")

    @classmethod
    def infer(cls, spec: LayerSpec, bottoms: Sequence[Shape]) -> LayerShapes:
        param = spec.param.scale_param
        shape = coefficient_shape(spec, bottoms, FIELD)
        params = []
        if len(bottoms) == 1:
            ones = pb.FillerParameter(type="constant", value=1)
            params.append(ParamSpec(shape, param.filler if param.HasField("filler") else ones))
        if param.bias_term:
            params.append(ParamSpec(shape, param.bias_filler))
        return LayerShapes((bottoms[0],), tuple(params))

    @classmethod
    def saved_for_backward(cls, spec: LayerSpec) -> float:
        return 1.0 if len(spec.bottoms) == 2 else 0.0  # the layer before it may absorb it

    @classmethod
    def flops(cls, spec: LayerSpec, bottoms: Sequence[Shape], tops: Sequence[Shape]) -> int:
        return count(tops[0]) * (1 + spec.param.scale_param.bias_term)

    @classmethod
    def mixes_samples(cls, spec: LayerSpec, bottoms: Sequence[Shape]) -> str:
        return coefficients_mix_samples(spec, bottoms, FIELD, spec.param.scale_param.bias_term)

    def forward(self, *bottoms: Tensor) -> Tensor:
        x = bottoms[0]
        factors = bottoms[1] if len(bottoms) == 2 else self.blob(0)
        if not self.bias_term:
            return x * spread(factors, x, self.axis)
        summands = self.blob(len(self.blobs) - 1)
        if factors.dim() == 1 and self.axis % x.dim() == 1 and factors.shape[0]:  # torch's kernel needs a channel
            return scale_channels(x, factors, summands)
        return x * spread(factors, x, self.axis) + spread(summands, x, self.axis)

    def channel_affine(self) -> ChannelAffine | None:
        if len(self.spec.bottoms) == 2 or self.axis != 1 or self.blob(0).dim() != 1:
            return None
        return ChannelAffine(self.blob(0), self.blob(1) if self.bias_term else None)


def scale_channels(x: Tensor, factors: Tensor | None, summands: Tensor | None) -> Tensor:
    """Return ``factors · x + summands`` by channel, in one pass each way.

    It runs as a batch normalisation by mean 0 and variance 1. ``None`` means factors of 1, or summands of 0. Both may
    be in single precision where ``x`` is in half.
    """
    like = factors if factors is not None else summands if summands is not None else x
    factors = like.new_ones(x.shape[1]) if factors is None else factors
    summands = like.new_zeros(x.shape[1]) if summands is None else summands
    if by_channel.applies(x) and is_channels_last(x):
        return by_channel.scale(x, factors, summands)
    mean, variance = torch.zeros_like(factors), torch.ones_like(factors)
    return torch.batch_norm(x, factors, summands, mean, variance, False, 0, 0, torch.backends.cudnn.enabled)


def normalise_plainly(x: Tensor, eps: float) -> tuple[Tensor, Tensor, Tensor]:
    """Return ``x`` normalised by its own mean and biased variance of each channel, and these; for exported programs.

    ONNX's exporter always writes torch's batch_norm as one by the statistics of a trained net.
    """
    axes = [axis for axis in range(x.dim()) if axis != 1]
    mean = x.mean(axes, keepdim=True)
    centred = x - mean
    variance = (centred * centred).mean(axes, keepdim=True)
    inverse = torch.rsqrt(variance * 2**20 + eps * 2**20) * 2**10  # onnxscript treats an eps of 1e-9 as 0, and drops it
    return centred * inverse, mean.flatten(), variance.flatten()


@LAYERS.register("Bias")
class Bias(Layer):
    """The first bottom plus summands for ``num_axes`` of its axes from ``axis`` on.

    The summands are the second bottom, or else the only blob, which starts at 0. The top has the first bottom's shape.
    """

    numbers = Autocast.WIDEST
    arity = Arity(bottoms=(1, 2))
    sample_independent = top_is_free = True
    overwrites = (0,)
    family = Family.NORM
    is_linear = True
    axis = setting(int, "bias_param.axis")

    @classmethod
    def infer(cls, spec: LayerSpec, bottoms: Sequence[Shape]) -> LayerShapes:
        shape = coefficient_shape(spec, bottoms, "bias_param")
        params = (ParamSpec(shape, spec.param.bias_param.filler),) if len(bottoms) == 1 else ()
        return LayerShapes((bottoms[0],), params)

    @classmethod
    def mixes_samples(cls, spec: LayerSpec, bottoms: Sequence[Shape]) -> str:
        return coefficients_mix_samples(spec, bottoms, "bias_param")

    def forward(self, *bottoms: Tensor) -> Tensor:
        return bottoms[0] + self._summands(bottoms)

    def overwrite(self, place: int, *bottoms: Tensor) -> Tensor:
        return bottoms[0].add_(self._summands(bottoms))

    def _summands(self, bottoms: Sequence[Tensor]) -> Tensor:
        summands = bottoms[1] if len(bottoms) == 2 else self.blob(0)
        return spread(summands, bottoms[0], self.axis)

    def channel_affine(self) -> ChannelAffine | None:
        if len(self.spec.bottoms) == 2 or self.axis != 1 or self.blob(0).dim() != 1:
            return None
        return ChannelAffine(summands=self.blob(0))
