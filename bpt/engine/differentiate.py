"""Backward passes from given diffs, which call the engine of autograd directly.

``torch.autograd.backward`` and ``grad`` compare the shapes of blobs and of diffs in terms that may be symbolic. For
that they import sympy at the first pass, which takes half a second: a fifth of the time to start training. Each later
call still takes 50 µs. Shapes here are numbers, which the engine compares itself. Its call is not part of torch's
public interface, so it is tried first on numbers with a known result. If that fails, the public functions are used.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge

# (blobs, their diffs, keep the graph, graph of gradients, leaves wanted, allow_unreachable=, accumulate_grad=)
_RunBackward = Callable[..., Sequence[Tensor | None]]


def add_gradients(tops: Sequence[Tensor], diffs: Sequence[Tensor], keep_graph: bool = False) -> None:
    """Add the gradients that follow from ``diffs`` of ``tops`` to the ``.grad`` of all leaves.

    Args:
        keep_graph: the same gradients may be computed again; costs memory.
    """
    run = autograd_engine()
    if run is None:
        torch.autograd.backward(tops, diffs, retain_graph=keep_graph)
    else:
        run(tuple(tops), tuple(diffs), keep_graph, False, (), allow_unreachable=True, accumulate_grad=True)


def gradients(
    tops: Sequence[Tensor], diffs: Sequence[Tensor], leaves: Sequence[Tensor | GradientEdge], keep_graph: bool = False
) -> Sequence[Tensor | None]:
    """Return the gradients of ``leaves`` that follow from ``diffs`` of ``tops``; ``None`` where nothing flows.

    Args:
        leaves: tensors, or inner places of the graph.
        keep_graph: as of ``add_gradients``.
    """
    run = autograd_engine()
    if run is None:
        return torch.autograd.grad(tops, leaves, diffs, retain_graph=keep_graph, allow_unused=True)  # type: ignore[arg-type]
    return run(
        tuple(tops), tuple(diffs), keep_graph, False, tuple(leaves), allow_unreachable=True, accumulate_grad=False
    )


def add_gradients_of(top: GradientEdge, diff: Tensor, leaves: Sequence[Tensor]) -> None:
    """Add the gradients of ``leaves`` that follow from ``diff`` of an inner place of the graph to their ``.grad``."""
    run = autograd_engine()
    if run is None:
        torch.autograd.backward((top,), (diff,), inputs=leaves)
    else:
        run((top,), (diff,), False, False, tuple(leaves), allow_unreachable=True, accumulate_grad=True)


@cache
def autograd_engine() -> _RunBackward | None:
    """Return the function that runs autograd's engine; ``None`` if this torch has none that is known here."""
    try:
        run: Any = torch.autograd.Variable._execution_engine.run_backward
        with torch.enable_grad():
            leaf, other = (torch.ones(2, requires_grad=True) for _ in range(2))
            top, diff = leaf * 3, torch.tensor([1.0, 2.0])
            run((top,), (diff,), True, False, (), allow_unreachable=True, accumulate_grad=True)
            found = run((top,), (diff,), False, False, (leaf, other), allow_unreachable=True, accumulate_grad=False)
        right = diff * 3
        known = leaf.grad is not None and leaf.grad.equal(right) and found[0].equal(right) and found[1] is None
    except (AttributeError, IndexError, TypeError, RuntimeError):
        return None
    return run if known else None
