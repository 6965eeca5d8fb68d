"""Bounds of what layers compute, which prove that a pass has neither infinite numbers nor NaN.

oneDNN's ReLU and maximum turn NaN into numbers, so a diverged net would look healthy. Where all numbers are known to be
finite, they give the same results as torch's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf, prod
from typing import Any

from bpt.config.proto import bpt_pb2 as pb
from bpt.nn.fusion.fusion_steps import FusionStep
from bpt.nn.fusion.operations import PreparedOperation
from bpt.nn.layers import Layer
from bpt.nn.layers.activation import Power, ReLU, ReLU6, Sigmoid, TanH
from bpt.nn.layers.concat import Concat, Split
from bpt.nn.layers.dropout import Dropout
from bpt.nn.layers.eltwise import SUM, Eltwise
from bpt.nn.layers.normalize import LRN
from bpt.nn.layers.pooling import Pooling
from bpt.nn.layers.reshape import Flatten
from bpt.nn.layers.softmax import Softmax

Bounds = Sequence[float]
"""The largest absolute values that the bottoms can have."""


def _largest(layer: Layer, bounds: Bounds) -> float:
    return max(bounds)


def _at_most_1(layer: Layer, bounds: Bounds) -> float:
    return 1.0


def _relu(layer: ReLU, bounds: Bounds) -> float:
    return bounds[0] * max(1.0, abs(layer.slope))


def _eltwise(layer: Eltwise, bounds: Bounds) -> float:
    if layer.operation == SUM:
        return sum(abs(coeff) * bound for coeff, bound in zip(layer.coeffs, bounds, strict=True))
    return prod(max(1.0, bound) for bound in bounds)


def _lrn(layer: LRN, bounds: Bounds) -> float:
    k = layer.k if layer.across else 1.0
    return bounds[0] * k**-layer.beta if k > 0 and layer.alpha >= 0 and layer.beta >= 0 else inf


def _pooling(layer: Pooling, bounds: Bounds) -> float:
    return inf if layer.method == pb.PoolingParameter.STOCHASTIC or layer.wants_places else bounds[0]


def _power(layer: Power, bounds: Bounds) -> float:
    if layer.scale * layer.power == 0 and layer.shift >= 0:
        return float(max(1.0, layer.shift) ** max(0.0, layer.power))
    return abs(layer.scale) * bounds[0] + abs(layer.shift) if layer.power == 1 else inf


OF_LAYERS: dict[type[Layer], Callable[[Any, Bounds], float]] = {
    Concat: _largest,
    Dropout: _largest,
    Eltwise: _eltwise,
    Flatten: _largest,
    LRN: _lrn,
    Pooling: _pooling,
    Power: _power,
    ReLU: _relu,
    ReLU6: _relu,
    Sigmoid: _at_most_1,
    Softmax: _at_most_1,
    Split: _largest,
    TanH: _at_most_1,
}
"""The functions of a layer and of its bottoms' bounds that return the bound of its tops, by type."""


def bound_of(step: FusionStep, layers: Sequence[Layer], bounds: Bounds) -> float:
    """Return the largest absolute value that the tops of a step can have; infinite or NaN if nothing is known.

    Args:
        bounds: those of the step's bottoms.
    """
    if isinstance(step.operation, PreparedOperation):
        gain, offset = step.operation.gain()
        return gain * bounds[0] + offset + sum(bounds[1:])
    for node in step.nodes:
        bounds = (OF_LAYERS[type(layers[node.index])](layers[node.index], bounds),)
    return bounds[0]
