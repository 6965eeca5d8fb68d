"""Checks any layer's gradients by finite differences, in one call (the habit of Caffe's GradientChecker)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from bpt.config.proto import bpt_pb2 as pb
from bpt.nn.layers import Layer
from bpt.nn.pass_context import PassContext
from tests.support.one_layer import Shape, one_layer, randomise, tops_of


def spaced(shape: Shape, seed: int = 0) -> Tensor:
    """Float64 numbers in (-2, 2) in random order; any two, and any one and 0, are well apart.

    So a step of a finite difference never crosses the kink of a maximum or a ReLU.
    """
    number = torch.Size(shape).numel()
    order = torch.randperm(number, generator=torch.Generator().manual_seed(seed)).double()
    return ((order + 0.5) / max(1, number) * 4 - 2 + 0.5 / max(1, number)).reshape(shape)


def check_gradients(
    body: str, *bottoms: Shape | Tensor, phase: int = pb.TRAIN, tops: int = 1, constant: tuple[int, ...] = ()
) -> None:
    """Compare each top's gradient by each bottom and trained parameter with finite differences, in float64.

    Args:
        body: the layer's text, such as ``type: "ReLU"``.
        bottoms: a shape, to be filled by ``spaced``, or the values themselves.
        constant: bottoms that get no diff (labels).
    """
    values = [
        bottom.double() if isinstance(bottom, Tensor) else spaced(bottom, seed) for seed, bottom in enumerate(bottoms)
    ]
    shapes = [tuple(value.shape) for value in values]
    check_layer(
        randomise(one_layer(body, *shapes, phase=phase, tops=tops, context=PassContext(seed=7))), values, constant
    )


def check_layer(layer: Layer, bottoms: Sequence[Tensor], constant: tuple[int, ...] = (), fast: bool = False) -> None:
    """``check_gradients`` of a layer that is there; it becomes one of float64.

    Args:
        fast: compare one number for each top and bottom, a random sum of the derivatives, not each derivative.
    """
    layer.double()
    values = [value.double().clone().requires_grad_(index not in constant) for index, value in enumerate(bottoms)]
    parameters = [blob for blob in layer.blobs if blob.requires_grad]

    def differentiable_tops(*arguments: Tensor) -> tuple[Tensor, ...]:
        tops_now = tops_of(layer, *arguments[: len(values)])  # the parameters behind them are changed in place
        return tuple(top for top in tops_now if top.requires_grad)

    assert torch.autograd.gradcheck(
        differentiable_tops, (*values, *parameters), eps=1e-6, atol=1e-6, rtol=1e-5, fast_mode=fast
    )
