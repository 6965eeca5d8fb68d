"""The question whether torch is writing a pass as a program, which gets the plain operators of torch."""

from __future__ import annotations

import warnings

import torch
from torch import Tensor


def is_compiling_or_tracing() -> bool:
    """Return whether ``torch.compile``, ``torch.export`` or ``torch.jit.trace`` is recording the pass.

    A compiler has ways of its own. A trace cannot be saved with the functions of Python in it, and it warns about each
    shape that Python reads.
    """
    return torch.compiler.is_compiling() or bool(torch.jit.is_tracing())  # type: ignore[attr-defined, no-untyped-call]


def plain_shape(tensor: Tensor) -> tuple[int, ...]:
    """Return the shape as ints, also inside ``torch.jit.trace``.

    A trace has tensors instead, and warns about each that Python reads. A trace is for one shape, so this is safe.
    """
    if torch.compiler.is_compiling() or not torch.jit.is_tracing():  # type: ignore[attr-defined, no-untyped-call]
        return tuple(tensor.shape)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", torch.jit.TracerWarning)  # type: ignore[attr-defined]
        return tuple(int(length) for length in tensor.shape)
