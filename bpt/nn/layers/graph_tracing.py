"""Questions whether torch is writing a pass as a program, which cannot read data or Python's state."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

import torch

P = ParamSpec("P")
T = TypeVar("T")


def is_traced() -> bool:
    """Return whether ``torch.jit.trace``, which is for one input only, is recording the pass."""
    return bool(torch.jit.is_tracing())  # type: ignore[attr-defined, no-untyped-call]


def is_exported() -> bool:
    """Return whether ``torch.export`` is recording the pass. Its programs never run backward."""
    return torch.compiler.is_compiling() and bool(torch.compiler.is_exporting())


def not_compiled(function: Callable[P, T]) -> Callable[P, T]:
    """Return a function that ``torch.compile`` calls unchanged instead of compiling it.

    ``torch.compiler.disable`` does the same, but loads the compiler: two seconds at the start of every process. Here
    only processes that compile wait for it.
    """

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        if torch.compiler.is_compiling():
            untouched: Callable[P, T] = torch.compiler.disable(function)  # type: ignore[no-untyped-call]
            return untouched(*args, **kwargs)
        return function(*args, **kwargs)

    return call
