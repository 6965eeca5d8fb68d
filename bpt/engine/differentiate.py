"""Backward passes from given diffs, by the engine of autograd, to which ``torch.autograd`` is a way round.

``torch.autograd.backward`` and ``grad`` compare the shapes of blobs and of given diffs in terms that may be symbolic,
and for that import sympy, at the first pass: half a second, a fifth of what it takes to start training. Later they
still cost some 50 µs a call. Shapes here are numbers, which the engine compares by itself. How it is called is not of
torch's public interface, so it is tried first, with numbers of which the answer is known; where that fails, the public
functions do it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor

# (blobs, their diffs, keep the graph, graph of gradients, leaves wanted, allow_unreachable=, accumulate_grad=)
_RunBackward = Callable[..., Sequence[Tensor | None]]


def add_gradients(tops: Sequence[Tensor], diffs: Sequence[Tensor], keep_graph: bool = False) -> None:
    """Add the gradients that follow from ``diffs`` of ``tops`` to the ``.grad`` of all leaves.

    Args:
        keep_graph: it may be asked for again; costs memory.
    """
    run = engine()
    if run is None:
        torch.autograd.backward(tops, diffs, retain_graph=keep_graph)
    else:
        run(tuple(tops), tuple(diffs), keep_graph, False, (), allow_unreachable=True, accumulate_grad=True)


def gradients(tops: Sequence[Tensor], diffs: Sequence[Tensor], leaves: Sequence[Tensor]) -> Sequence[Tensor | None]:
    """Return the gradients of ``leaves`` that follow from ``diffs`` of ``tops``; ``None`` where nothing flows."""
    run = engine()
    if run is None:
        return torch.autograd.grad(tops, leaves, diffs, allow_unused=True)
    return run(tuple(tops), tuple(diffs), False, False, tuple(leaves), allow_unreachable=True, accumulate_grad=False)


@cache
def engine() -> _RunBackward | None:
    """Return how autograd's engine is called; ``None``: not in a way that is known here."""
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
