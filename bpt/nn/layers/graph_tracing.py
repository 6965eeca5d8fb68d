"""Whether torch is writing a pass down as a program, which then cannot look at data or at Python's state."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

import torch
from torch import Tensor

P = ParamSpec("P")
T = TypeVar("T")


def is_traced() -> bool:
    """Return whether ``torch.jit.trace`` is writing down what happens, which it does for one input only."""
    return bool(torch.jit.is_tracing())  # type: ignore[attr-defined, no-untyped-call]


def plain_shape(tensor: Tensor) -> tuple[int, ...]:
    """Return the shape in numbers, also where a trace has tensors for them and warns of each that is looked at: a
    trace is for
    one shape.
    """
    if torch.compiler.is_compiling() or not is_traced():
        return tuple(tensor.shape)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", torch.jit.TracerWarning)  # type: ignore[attr-defined]
        return tuple(int(length) for length in tensor.shape)


def is_written_down() -> bool:
    """Return whether ``torch.compile``, ``torch.export`` or ``torch.jit.trace`` is."""
    return torch.compiler.is_compiling() or is_traced()


def is_exported() -> bool:
    """Return whether ``torch.export`` is, whose programs nobody goes backward."""
    return torch.compiler.is_compiling() and bool(torch.compiler.is_exporting())


def not_compiled(function: Callable[P, T]) -> Callable[P, T]:
    """Return a decorator: ``torch.compile`` calls the function as it is, instead of compiling it.

    As ``torch.compiler.disable``, which loads the compiler, though: two seconds at the start of every process. Here
    only those wait for it who compile.
    """

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        if torch.compiler.is_compiling():
            untouched: Callable[P, T] = torch.compiler.disable(function)  # type: ignore[no-untyped-call]
            return untouched(*args, **kwargs)
        return function(*args, **kwargs)

    return call
