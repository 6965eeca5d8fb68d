"""Divergence: a run ends if its loss or weights are NaN or infinite, and reports the first layer that is not finite.

Caffe continues, and writes useless snapshots; ``on_nan: GO_ON`` does the same.
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
    """A blob or weight with a non-finite number; places are ordered by layer.

    Attributes:
        layer: the index of its layer in the graph.
        words: its description.
        drawn: whether the layer has no bottoms, so that the data are the cause.
    """

    layer: int
    words: str
    drawn: bool = False


def check_loss(loss: float, iteration: int, optim: OptimSpec, net: Net, world: Communicator, again: Look) -> None:
    """Raise a DivergedError if ``loss``, which is that of all ranks, is not finite; then this is a collective call.

    Args:
        iteration: the iteration with this loss, which has not changed the weights.
        optim: the settings that the remedy names.
        again: function that runs the training net forward as the iteration did.
    """
    if math.isfinite(loss):
        return
    found, why = _first(world, _of_weights(net)), "since an earlier update"
    if found is None:
        with _watched(net) as seen:
            again()
        found, why = _first(world, min(seen, default=None)), "though its bottoms and weights are"
    if found is None:
        where = "all blobs and weights are finite when they are checked again"
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
    """Raise a DivergedError if ``loss``, which was read after later iterations had begun, is not finite."""
    if math.isfinite(loss):
        return
    raise DivergedError(
        f"iteration {iteration}: the loss is {loss:g}, and later iterations have changed the weights, since losses on "
        f"a GPU are read when they are displayed; display: 1 names the layer; {_lower_rate(optim, iteration)}; "
        f"{_GO_ON}"
    )


def check_weights(iteration: int, net: Net, world: Communicator) -> None:
    """Raise a DivergedError if a weight to be written is not finite; a collective call."""
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
    """Yield a list that gets the places of non-finite tops in all passes of the block."""
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
