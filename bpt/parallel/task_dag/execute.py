"""Running layers forward and backward inside a task, with errors that name them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor, nn

from bpt.base.errors import BptError, RunError
from bpt.engine.differentiate import gradients
from bpt.graph.layer_graph import LayerNode
from bpt.nn.net import Net
from bpt.system.device.torch_errors import kernel_error

Call = Callable[..., Tensor | tuple[Tensor, ...]]  # what makes a layer's tops from its bottoms


def run_layer(net: Net, call: Call, node: LayerNode, values: Mapping[int, Tensor], grad: bool) -> tuple[Tensor, ...]:
    """Return the layer's tops, as ``Net.run`` computes them.

    Args:
        call: the layer, or what gives the same numbers.
        values: its bottoms, by edge.
        grad: whether backward will follow.
    """
    bottoms: Sequence[Tensor] = ()
    try:
        with torch.set_grad_enabled(grad and node.needs_backward):
            bottoms = net.bottoms(node, values)
            tops = call(*bottoms)
    except BptError:
        raise
    except (RuntimeError, MemoryError) as error:
        raise forward_error(node, error, bottoms) from error
    return (tops,) if isinstance(tops, Tensor) else tuple(tops)


def differentiate(
    where: str,
    tops: Sequence[Tensor],
    diffs: Sequence[Tensor | None],
    leaves: Sequence[Tensor],
    parameters: Sequence[nn.Parameter],
) -> tuple[list[Tensor | None], list[Tensor | None]]:
    """Return the gradients of ``leaves`` and ``parameters`` from ``diffs`` of ``tops``; ``None`` where nothing flows.

    Nothing is added to any ``.grad``, since other tasks may be at the same parameters.

    Args:
        where: the layers, for errors.
    """
    pairs = [(top, diff) for top, diff in zip(tops, diffs, strict=True) if diff is not None and top.requires_grad]
    wanted = [*leaves, *parameters]
    if not pairs or not wanted:
        return [None] * len(leaves), [None] * len(parameters)
    try:
        grads = gradients([top for top, _ in pairs], [diff for _, diff in pairs], wanted)
    except BptError:
        raise
    except (RuntimeError, MemoryError) as error:
        raise backward_error(where, error) from error
    return list(grads[: len(leaves)]), list(grads[len(leaves) :])


def forward_error(node: LayerNode, error: BaseException, bottoms: Sequence[Tensor]) -> RunError:
    """Return what torch raised in the forward pass of a layer."""
    return kernel_error(f'layer "{node.name}"', error, bottoms)


def backward_error(where: str, error: BaseException) -> RunError:
    """Return what torch raised in the backward pass of the layers ``where``."""
    return RunError(f"backward pass, {kernel_error(where, error)}")
