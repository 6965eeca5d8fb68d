"""Running layers forward and backward inside a task, with errors that name them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from bpt.base.errors import BptError
from bpt.engine.differentiate import gradients
from bpt.graph.layer_graph import LayerNode
from bpt.nn.net import Net
from bpt.system.device.torch_errors import kernel_error

Call = Callable[..., Tensor | tuple[Tensor, ...]]  # what makes a layer's tops from its bottoms


@contextmanager
def kernel_errors(where: str, bottoms: Sequence[Tensor] = ()) -> Iterator[None]:
    """Turn what torch raises into a RunError that names the layers ``where`` and the shapes of ``bottoms``."""
    try:
        yield
    except BptError:
        raise
    except (RuntimeError, MemoryError) as error:
        raise kernel_error(where, error, bottoms) from error


def run_layer(net: Net, call: Call, node: LayerNode, values: Mapping[int, Tensor], grad: bool) -> tuple[Tensor, ...]:
    """Return the layer's tops, as ``Net.run`` computes them.

    Args:
        call: the layer, or what gives the same numbers.
        values: its bottoms, by edge.
        grad: whether backward will follow.
    """
    bottoms: list[Tensor] = []
    with kernel_errors(f'layer "{node.name}"', bottoms), torch.set_grad_enabled(grad and node.needs_backward):
        bottoms += net.bottoms(node, values)
        tops = call(*bottoms)
    return (tops,) if isinstance(tops, Tensor) else tuple(tops)


def differentiate(
    tops: Sequence[Tensor],
    diffs: Sequence[Tensor | None],
    leaves: Sequence[Tensor],
    parameters: Sequence[nn.Parameter] = (),
) -> tuple[list[Tensor | None], list[Tensor | None]]:
    """Return the gradients of ``leaves`` and ``parameters`` from ``diffs`` of ``tops``; ``None`` where nothing flows.

    Nothing is added to any ``.grad``, since other tasks may be at the same parameters.
    """
    pairs = [(top, diff) for top, diff in zip(tops, diffs, strict=True) if diff is not None and top.requires_grad]
    wanted = [*leaves, *parameters]
    if not pairs or not wanted:
        return [None] * len(leaves), [None] * len(parameters)
    grads = gradients([top for top, _ in pairs], [diff for _, diff in pairs], wanted)
    return list(grads[: len(leaves)]), list(grads[len(leaves) :])
