"""Exp and Log: powers of a base, and logarithms to a base."""

from __future__ import annotations

import math
from collections.abc import Sequence

from torch import Tensor

from bpt.graph.layer_spec import LayerShapes, LayerSpec, Shape
from bpt.nn.layers.activation import Neuron
from bpt.nn.layers.base import LAYERS
from bpt.nn.pass_context import PassContext

E = -1.0  # how a text says that the base is e


def _log_base(spec: LayerSpec, field: str) -> float:
    """Return the natural logarithm of ``field { base }``.

    Raises:
        LayerError: the base is not a number above 0.
    """
    base = getattr(spec.param, field).base
    if base == E:
        return 1.0
    if not 0 < base < math.inf:
        raise spec.error(f"base must be above 0, or -1 for e; not {base:g}", field, "base")
    return math.log(base)


def _linear(x: Tensor, scale: float, shift: float) -> Tensor:
    """Return ``shift + scale · x``: ``x`` itself, or a tensor that the caller may overwrite."""
    if scale == 1:
        return x + shift if shift else x
    scaled = x * scale
    return scaled.add_(shift) if shift else scaled


@LAYERS.register("Exp")
class Exp(Neuron):
    """``base ^ (shift + scale · x)``, element by element. The default ``base``, -1, means e."""

    def __init__(self, spec: LayerSpec, context: PassContext) -> None:
        super().__init__(spec, context)
        param = spec.param.exp_param
        log_base = _log_base(spec, "exp_param")
        self.scale, self.shift = log_base * param.scale, log_base * param.shift

    @classmethod
    def infer(cls, spec: LayerSpec, bottoms: Sequence[Shape]) -> LayerShapes:
        _log_base(spec, "exp_param")
        return super().infer(spec, bottoms)

    def forward(self, *bottoms: Tensor) -> Tensor:
        exponent = _linear(bottoms[0], self.scale, self.shift)
        return exponent.exp() if exponent is bottoms[0] else exponent.exp_()


@LAYERS.register("Log")
class Log(Neuron):
    """The logarithm of ``shift + scale · x`` to ``base``. The default ``base``, -1, means e."""

    def __init__(self, spec: LayerSpec, context: PassContext) -> None:
        super().__init__(spec, context)
        param = spec.param.log_param
        self.scale, self.shift = param.scale, param.shift
        self.factor = 1 / _log_base(spec, "log_param")

    @classmethod
    def infer(cls, spec: LayerSpec, bottoms: Sequence[Shape]) -> LayerShapes:
        if not _log_base(spec, "log_param"):
            raise spec.error("no logarithm has the base 1", "log_param", "base")
        return super().infer(spec, bottoms)

    def forward(self, *bottoms: Tensor) -> Tensor:
        natural = _linear(bottoms[0], self.scale, self.shift).log()
        return natural if self.factor == 1 else natural.mul_(self.factor)
