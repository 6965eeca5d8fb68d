"""The question whether torch is writing a pass as a program, which gets the plain operators of torch."""

from __future__ import annotations

import torch


def is_compiling_or_tracing() -> bool:
    """Return whether ``torch.compile``, ``torch.export`` or ``torch.jit.trace`` is recording the pass.

    A compiler has ways of its own. A trace cannot be saved with the functions of Python in it, and it warns about each
    shape that Python reads.
    """
    return torch.compiler.is_compiling() or bool(torch.jit.is_tracing())  # type: ignore[attr-defined, no-untyped-call]
