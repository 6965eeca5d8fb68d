"""The parameters that a solver trains, and the norm and the scale of all their gradients."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from bpt.base.log import number
from bpt.config.optim_spec import OptimSpec
from bpt.engine.optim.tensor_layout import split
from bpt.engine.optim.weight_slices import NO_SLICES, Elements, WeightSlices
from bpt.graph.layer_graph import LayerGraph, Param
from bpt.nn.net import Net

LOG = logging.getLogger("bpt")

SUMMED = 2**16  # elements that are added up in float32, which loses less than one digit


@dataclass(frozen=True, eq=False)
class LearnableParam:
    """A parameter blob as a solver sees it: its values with their ``.grad``, and its factors.

    ``name`` is the name of its layer and its number among the layer's blobs: ``conv1/0``. ``elements`` are those of the
    blob, in row-major order, that ``value`` has as one row; ``None``: it has the blob.
    """

    name: str
    value: nn.Parameter
    lr_mult: float = 1.0
    decay_mult: float = 1.0
    elements: Elements | None = None

    def own(self, values: Tensor) -> Tensor:
        """Return the part of ``values``, which are the blob's or this part already, that belongs to ``value``."""
        if self.elements is None or values.dim() == 0 or values.shape == self.value.shape:
            return values
        return values.reshape(-1)[slice(*self.elements)]


def learnable_params(net: Net, slices: WeightSlices = NO_SLICES) -> list[LearnableParam]:
    """Return the parameters of ``net`` on this rank, in Caffe's order of ``learnable_params``, shared ones once.

    Args:
        slices: what this rank updates of those parameters that ranks divide.
    """
    found = []
    for param in net.local_params:
        value, name = net.value(param), param_name(net.graph, param)
        own = slices.of(value)
        values, elements = (own.value, own.elements) if own else (value, None)
        found.append(LearnableParam(name, values, param.lr_mult, param.decay_mult, elements))
    return found


def param_name(graph: LayerGraph, param: Param) -> str:
    """Return the name of a parameter's layer, and its number among the layer's blobs: ``conv1/0``."""
    return f"{graph.nodes[param.layer].name}/{param.blob}"


def l2_norm(tensors: Sequence[Tensor]) -> float:
    """Return the L2 norm of all elements of ``tensors`` together.

    A CPU sums pieces, since torch adds up in float32, which costs 3 digits over the weights of a large layer.
    """
    if not tensors:
        return 0.0
    pieces = [piece for tensor in tensors for piece in split(tensor, SUMMED)]
    return float(torch.stack(torch._foreach_norm(pieces)).double().norm())


def gradient_scale(norm: Callable[[], float], spec: OptimSpec) -> float:
    """Return the factor by which the solver multiplies every gradient before weight decay.

    If the L2 norm of all gradients, still summed over the ``iter_size`` passes, is above ``clip_gradients``, it is
    scaled down to that, which is logged in Caffe's words. Then gradients are divided by ``iter_size``.

    Args:
        norm: returns the L2 norm; called only if it is needed.
    """
    scale = 1 / spec.iter_size
    if spec.clip_gradients >= 0:
        size = norm()
        if size > spec.clip_gradients:
            factor = spec.clip_gradients / size
            LOG.info(
                "Gradient clipping: scaling down gradients (L2 norm %s > %s) by scale factor %s",
                *map(number, (size, spec.clip_gradients, factor)),
            )
            scale *= factor
    return scale
