"""The part of a backward pass in two that is under way, for functions of ours that compute two gradients.

Torch's own functions leave out the gradients that a pass does not ask for. Functions in Python cannot see which these
are.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from torch.autograd.function import FunctionCtx

_waiting: ContextVar[Collection[Any]] = ContextVar("waiting", default=())
_due: ContextVar[Collection[Any]] = ContextVar("due", default=())


@contextmanager
def without_weights(nodes: Collection[Any]) -> Iterator[None]:
    """Let these nodes of autograd leave out the gradients of weights in the scope, and in this thread alone."""
    yield from _set(_waiting, nodes)


@contextmanager
def weights_alone(nodes: Collection[Any]) -> Iterator[None]:
    """Let these nodes of autograd compute the gradients of weights alone in the scope, and in this thread alone."""
    yield from _set(_due, nodes)


def _set(variable: ContextVar[Collection[Any]], nodes: Collection[Any]) -> Iterator[None]:
    token = variable.set(nodes)
    try:
        yield
    finally:
        variable.reset(token)


def wanted_gradients(ctx: FunctionCtx) -> tuple[bool, ...]:
    """Return which arguments of a function want a gradient now; the first one is a blob, the others are weights."""
    wants_x, *wants = ctx.needs_input_grad  # type: ignore[attr-defined]
    leaves_out = ctx in _waiting.get()
    return wants_x and ctx not in _due.get(), *(each and not leaves_out for each in wants)
