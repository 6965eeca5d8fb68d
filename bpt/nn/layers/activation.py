"""Element-wise activations of one bottom: the ReLU family, Sigmoid, TanH, AbsVal, BNLL, Clip, Power and others."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from bpt.config.precision import narrowed
from bpt.config.proto import bpt_pb2 as pb
from bpt.graph.layer_spec import Autocast, LayerShapes, LayerSpec, ParamSpec, Shape
from bpt.nn.layers.base import ALL_BOTTOMS, LAYERS, Family, Layer, setting
from bpt.nn.pass_context import PassContext

LARGE = 50.0  # above it, Caffe's backward uses exp(50) for exp(x): the gradient is 1, up to 2e-22


class Neuron(Layer):
    """A layer whose top has its bottom's shape (Caffe: NeuronLayer)."""

    elementwise = sample_independent = True
    family = Family.ACTIVATION

    @classmethod
    def infer(cls, spec: LayerSpec, bottoms: Sequence[Shape]) -> LayerShapes:
        return LayerShapes((bottoms[0],))


@LAYERS.register("ReLU")
class ReLU(Neuron):
    """``max(x, 0) + negative_slope · min(x, 0)``; at 0 the gradient is ``negative_slope``."""

    numbers = Autocast.WIDEST
    settings = "relu_param"

    @classmethod
    def saved_for_backward(cls, spec: LayerSpec) -> float:
        return 0.0 if spec.param.relu_param.negative_slope >= 0 else 1.0

    def __init__(self, spec: LayerSpec, context: PassContext) -> None:
        super().__init__(spec, context)
        self.slope = spec.param.relu_param.negative_slope
        self.overwrites = (0,) if self.slope >= 0 else ()  # below 0 the top does not show the sign of the bottom

    def forward(self, *bottoms: Tensor) -> Tensor:
        return functional.leaky_relu(bottoms[0], self.slope) if self.slope else torch.relu(bottoms[0])

    def overwrite(self, place: int, *bottoms: Tensor) -> Tensor:
        return functional.leaky_relu_(bottoms[0], self.slope) if self.slope else bottoms[0].relu_()


@LAYERS.register("ReLU6")
class ReLU6(ReLU):
    """``min(ReLU(x), 6)``, with ``relu_param { negative_slope }`` as for ReLU; at 6 the gradient is 0.

    From the community's Caffes; MobileNets use it (Sandler et al., *MobileNetV2*, 2018).
    """

    @classmethod
    def saved_for_backward(cls, spec: LayerSpec) -> float:
        return 1.0  # torch keeps its bottom, since the top is not enough for backward

    def __init__(self, spec: LayerSpec, context: PassContext) -> None:
        super().__init__(spec, context)
        self.overwrites = () if self.slope else (0,)

    def forward(self, *bottoms: Tensor) -> Tensor:
        if not self.slope:
            return functional.relu6(bottoms[0])
        y = functional.leaky_relu(bottoms[0], self.slope)
        return torch.where(y >= 6, 6.0, y)  # not clamp, whose gradient at 6 is 1

    def overwrite(self, place: int, *bottoms: Tensor) -> Tensor:
        return functional.relu6(bottoms[0], inplace=True)


@LAYERS.register("ELU")
class ELU(Neuron):
    """``lambda · x`` above 0, else ``lambda · alpha · (exp(x) - 1)``; at 0 the gradient is ``lambda · alpha``.

    (Clevert et al., *Fast and Accurate Deep Network Learning by Exponential Linear Units*, 2016. ``lambda`` is 1 except
    in NVIDIA's Caffe, for Klambauer et al., *Self-Normalizing Neural Networks*, 2017.)
    """

    numbers = Autocast.WIDEST

    def __init__(self, spec: LayerSpec, context: PassContext) -> None:
        super().__init__(spec, context)
        self.alpha = spec.param.elu_param.alpha
        self.factor: float = getattr(spec.param.elu_param, "lambda")  # a keyword of Python

    def forward(self, *bottoms: Tensor) -> Tensor:
        y = functional.elu(bottoms[0], self.alpha)
        return y if self.factor == 1 else y * self.factor


@LAYERS.register("Sigmoid")
class Sigmoid(Neuron):
    """``1 / (1 + exp(-x))``."""

    numbers = Autocast.WIDEST
    overwrites = (0,)

    def forward(self, *bottoms: Tensor) -> Tensor:
        return torch.sigmoid(bottoms[0])

    def overwrite(self, place: int, *bottoms: Tensor) -> Tensor:
        return bottoms[0].sigmoid_()


@LAYERS.register("Swish")
class Swish(Neuron):
    """``x / (1 + exp(-beta · x))`` (Ramachandran et al., *Searching for Activation Functions*, 2017)."""

    numbers = Autocast.WIDEST
    beta = setting(float, "swish_param.beta")

    def forward(self, *bottoms: Tensor) -> Tensor:
        x = bottoms[0]
        return functional.silu(x) if self.beta == 1 else x * torch.sigmoid(x * self.beta)


@LAYERS.register("TanH")
class TanH(Neuron):
    """``tanh(x)``."""

    numbers = Autocast.WIDEST
    overwrites = (0,)

    def forward(self, *bottoms: Tensor) -> Tensor:
        return torch.tanh(bottoms[0])

    def overwrite(self, place: int, *bottoms: Tensor) -> Tensor:
        return bottoms[0].tanh_()


@LAYERS.register("AbsVal")
class AbsVal(Neuron):
    """``|x|``; at 0 the gradient is 0."""

    numbers = Autocast.WIDEST

    def forward(self, *bottoms: Tensor) -> Tensor:
        return bottoms[0].abs()


@LAYERS.register("BNLL")
class BNLL(Neuron):
    """``log(1 + exp(x))``, for any ``x``; above 50 it is ``x`` itself, and its gradient 1."""

    def forward(self, *bottoms: Tensor) -> Tensor:
        return functional.softplus(bottoms[0], threshold=LARGE)


@LAYERS.register("Clip")
class Clip(Neuron):
    """``max(min, min(x, max))``; the gradient is 1 at the bounds and between them, else 0.

    In place it is 1 everywhere, as in Caffe, where the bottom then holds the clipped values.
    """

    numbers = Autocast.WIDEST
    least = setting(float, "clip_param.min")
    most = setting(float, "clip_param.max")

    @classmethod
    def infer(cls, spec: LayerSpec, bottoms: Sequence[Shape]) -> LayerShapes:
        if not spec.param.HasField("clip_param"):
            raise spec.error("needs clip_param { min max }", "type")
        least, most = spec.param.clip_param.min, spec.param.clip_param.max
        if not least <= most:
            raise spec.error(f"min {least:g} must be at most max {most:g}", "clip_param", "min")
        return super().infer(spec, bottoms)

    def forward(self, *bottoms: Tensor) -> Tensor:
        x = bottoms[0]
        if self.in_place and x.requires_grad:
            y: Tensor = _ClipInPlace.apply(x, self.least, self.most)  # type: ignore[no-untyped-call]
            return y
        return x.clamp(self.least, self.most)


class _ClipInPlace(torch.autograd.Function):
    @staticmethod
    def forward(ctx: object, x: Tensor, least: float, most: float) -> Tensor:
        return x.clamp(least, most)

    @staticmethod
    def backward(ctx: object, *diffs: Tensor) -> tuple[Tensor, None, None]:
        return diffs[0], None, None


@LAYERS.register("Power")
class Power(Neuron):
    """``(shift + scale · x) ^ power``.

    If ``scale · power`` is 0 the top is constant, even where the bottom is infinite, and the bottom gets no diff.
    """

    power = setting(float, "power_param.power")
    scale = setting(float, "power_param.scale")
    shift = setting(float, "power_param.shift")

    @classmethod
    def autocast(cls, spec: LayerSpec) -> Autocast:
        return Autocast.WIDEST if spec.param.power_param.power == 1 else Autocast.FULL

    def forward(self, *bottoms: Tensor) -> Tensor:
        x = bottoms[0]
        if self.scale * self.power == 0:
            return torch.full_like(x, self.shift).pow_(self.power)
        linear = x * self.scale if self.scale != 1 else x
        linear = linear + self.shift if self.shift else linear
        return linear if self.power == 1 else linear.pow(self.power)


@LAYERS.register("Threshold")
class Threshold(Neuron):
    """1 where ``x > threshold`` (default 0), else 0. It never runs backward, so the bottom gets no diff."""

    bottoms_without_diff = ALL_BOTTOMS
    threshold = setting(float, "threshold_param.threshold")

    @torch.no_grad()
    def forward(self, *bottoms: Tensor) -> Tensor:
        return (bottoms[0] > self.threshold).to(bottoms[0].dtype)


@LAYERS.register("PReLU")
class PReLU(Neuron):
    """``max(x, 0) + slope · min(x, 0)``; at 0 the gradient is the slope.

    Bottom ``(N, channels, …)``. Blob: the slopes ``(channels,)``, or ``()`` if ``channel_shared``. They start at 0.25.
    """

    numbers = Autocast.WIDEST
    elementwise = False  # a slope for each channel

    @classmethod
    def infer(cls, spec: LayerSpec, bottoms: Sequence[Shape]) -> LayerShapes:
        param = spec.param.prelu_param
        bottom = bottoms[0]
        if len(bottom) < 2:
            raise spec.error(f"needs a bottom of at least 2 axes (N, channels), not shape {bottom}", "bottom")
        filler = param.filler if param.HasField("filler") else pb.FillerParameter(type="constant", value=0.25)
        return LayerShapes((bottom,), (ParamSpec(() if param.channel_shared else (bottom[1],), filler),))

    def forward(self, *bottoms: Tensor) -> Tensor:
        return functional.prelu(bottoms[0], narrowed(self.blob(0), bottoms[0]))
