"""The part of a backward pass in two that is under way, for functions of ours that compute two gradients.

Torch's own functions leave out the gradients that a pass does not ask for. Functions in Python cannot see which these
are.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from enum import Enum

from torch.autograd.function import FunctionCtx


class BackwardPart(Enum):
    """A part of a backward pass."""

    BOTH = 0
    INPUTS = 1
    WEIGHTS = 2


_part = ContextVar("part", default=BackwardPart.BOTH)


@contextmanager
def backward_part(part: BackwardPart) -> Iterator[None]:
    """Let functions compute only the gradients of a part in the scope, in this thread: on a CPU, autograd's own."""
    token = _part.set(part)
    try:
        yield
    finally:
        _part.reset(token)


def wanted_gradients(ctx: FunctionCtx) -> tuple[bool, ...]:
    """Return for each argument of a function, of which the first is a blob and others are weights, if it wants one."""
    part = _part.get()
    wants_x, *wants = ctx.needs_input_grad  # type: ignore[attr-defined]
    of_weights = part is not BackwardPart.INPUTS
    return wants_x and part is not BackwardPart.WEIGHTS, *(each and of_weights for each in wants)
