"""Divergence: a run whose loss or weights are NaN or infinite ends, and says where numbers ceased to be finite.

Caffe trains on, and writes snapshots of what nobody can use; ``on_nan: GO_ON`` does so, too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from bpt.base.errors import DivergedError
from bpt.base.log import number
from bpt.config.optim_spec import OptimSpec
from bpt.engine.optim import lr_policy
from bpt.nn.net import Net
from bpt.system.comm.base import Communicator

Look = Callable[[], object]


class NonFinitePlace(NamedTuple):
    """The place where a number that is not finite was found; the first in the order of layers is the least.

    Attributes:
        layer: its index in the graph.
        words: what it is.
        drawn: whether the layer has no bottoms, so that the data are to blame.
    """

    layer: int
    words: str
    drawn: bool = False


def check_loss(loss: float, iteration: int, optim: OptimSpec, net: Net, world: Communicator, again: Look) -> None:
    """Raise a DivergedError unless ``loss``, of all ranks, is finite; then a collective call.

    Args:
        iteration: whose loss it is; it has not changed the weights.
        optim: what the remedy is about.
        again: runs the training net forward as that iteration did.
    """
    if math.isfinite(loss):
        return
    found, why = _first(world, _of_weights(net)), "since an earlier update"
    if found is None:
        with _watched(net) as seen:
            again()
        found, why = _first(world, min(seen, default=None)), "though its bottoms and weights are"
    if found is None:
        where = "all blobs and weights are finite when they are looked at again"
    elif found.drawn:
        where = f"{found.words} is not finite: it is the data"
    else:
        where = f"{found.words} is not finite, {why}"
    remedy = "mend the data" if found and found.drawn else _lower_rate(optim, iteration)
    raise DivergedError(f"iteration {iteration}: the loss is {loss:g}: {where}; {remedy}; {_GO_ON}")


_GO_ON = "on_nan: GO_ON trains on, as Caffe does"


def _lower_rate(optim: OptimSpec, iteration: int) -> str:
    rate = number(lr_policy.learning_rate(optim, iteration))
    return f"lower base_lr (the rate is {rate} now), warm up, or set clip_gradients"


def check_late_loss(loss: float, iteration: int, optim: OptimSpec) -> None:
    """Raise a DivergedError unless ``loss``, which was read after later iterations had begun, is finite."""
    if math.isfinite(loss):
        return
    raise DivergedError(
        f"iteration {iteration}: the loss is {loss:g}, and later iterations have changed the weights, since losses on "
        f"a GPU are read when they are displayed; display: 1 names the layer; {_lower_rate(optim, iteration)}; "
        f"{_GO_ON}"
    )


def check_weights(iteration: int, net: Net, world: Communicator) -> None:
    """Raise a DivergedError unless all weights to be written are finite; a collective call."""
    found = _first(world, _of_weights(net))
    if found is not None:
        raise DivergedError(
            f"after {iteration} iterations {found.words} is not finite: no snapshot is written; lower base_lr, warm "
            "up, or set clip_gradients; on_nan: GO_ON writes it, as Caffe does"
        )


def _first(world: Communicator, own: NonFinitePlace | None) -> NonFinitePlace | None:
    """Return the first place on any rank."""
    return min((place for place in world.allgather(own) if place is not None), default=None)


def _of_weights(net: Net) -> NonFinitePlace | None:
    places = (
        NonFinitePlace(param.layer, f'a weight of layer "{net.graph.nodes[param.layer].name}"')
        for param in net.local_params
        if not _finite(net.value(param))
    )
    return min(places, default=None)


@contextmanager
def _watched(net: Net) -> Iterator[list[NonFinitePlace]]:
    """Yield the places where layers produce numbers that are not finite, of all passes inside."""
    seen: list[NonFinitePlace] = []

    def check_tops(index: int, layer: nn.Module, bottoms: Any, made: Any) -> None:
        node = net.graph.nodes[index]
        for edge, top in zip(node.tops, (made,) if isinstance(made, Tensor) else made, strict=False):
            if isinstance(top, Tensor) and not _finite(top):
                words = f'blob "{net.graph.edges[edge].blob}" of layer "{node.name}" ({node.type})'
                seen.append(NonFinitePlace(index, words, not node.bottoms))

    hooks = [layer.register_forward_hook(partial(check_tops, index)) for index, layer in enumerate(net.layers)]
    try:
        yield seen
    finally:
        for hook in hooks:
            hook.remove()


def _finite(value: Tensor) -> bool:
    return not value.is_floating_point() or bool(torch.isfinite(value.detach()).all())
