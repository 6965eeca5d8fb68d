"""Checks of a user's module: whether it takes its bottoms, and whether gradients flow through it."""

from __future__ import annotations

import inspect
from collections.abc import Sequence

from torch import Tensor, nn
from torch.autograd.graph import Node, get_gradient_edge

from bpt.graph.layer_spec import LayerSpec
from bpt.nn.layers.layer_text import notice


def check_forward(spec: LayerSpec, module: nn.Module) -> None:
    """Raise a LayerError unless ``module`` has a ``forward`` that takes as many tensors as the layer has bottoms."""
    kind = spec.param.python_param.layer
    if type(module).forward is nn.Module.forward and "forward" not in vars(module):
        raise spec.error(f"{kind} has no forward, which makes the tops of the bottoms", "python_param", "layer")
    try:
        signature = inspect.signature(module.forward)
    except (TypeError, ValueError):  # of a compiled function
        return
    try:
        signature.bind(*spec.bottoms)
    except TypeError as error:
        names = ", ".join(spec.bottom_names)
        given = f"{len(spec.bottoms)} bottom{'s' * (len(spec.bottoms) != 1)}{f' ({names})' if names else ''}"
        raise spec.error(f"forward{signature} of {kind} does not take {given}: {error}", "bottom") from None


def notice_cut(spec: LayerSpec, bottoms: Sequence[Tensor], tops: Sequence[Tensor]) -> None:
    """Log which of the bottoms that want a gradient get none, since no top depends on them for autograd."""
    if not tops:
        return
    reached = _reached(bottoms, tops)
    names = [
        f'"{name}"'
        for name, bottom, known in zip(spec.bottom_names, bottoms, reached, strict=True)
        if bottom.requires_grad and not known
    ]
    if names:
        which = "its top does" if len(tops) == 1 else "its tops do"
        notice(
            spec,
            f"{which} not depend on bottom {' and '.join(names)} for autograd, which does not see through detach(), "
            "NumPy or whole numbers: nothing below learns by it (propagate_down: false says that this is meant)",
            "python_param",
        )


def _reached(bottoms: Sequence[Tensor], tops: Sequence[Tensor]) -> list[bool]:
    """Return for each bottom whether going backward from the tops leads to it; False without ``requires_grad``."""
    wanted = [_edge(bottom) if bottom.requires_grad else None for bottom in bottoms]
    waiting = [_edge(top) for top in tops if top.requires_grad]
    seen = set(waiting)
    while waiting:
        edge = waiting.pop()
        if edge in wanted:
            continue  # what is below the bottoms is not this layer's
        further = {(node, number) for node, number in edge[0].next_functions if node is not None} - seen
        seen |= further
        waiting.extend(further)
    return [edge in seen for edge in wanted]


def _edge(tensor: Tensor) -> tuple[Node, int]:
    """Return the node of autograd's graph that made the tensor, and which of its results it is."""
    edge = get_gradient_edge(tensor)
    return edge.node, edge.output_nr
