"""Errors of torch's kernels, translated to errors that name the place in the net."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from bpt.base.errors import RunError, first_line_of

# The first words of the errors of torch's allocators; the CPU's has no exception type of its own.
_NO_MEMORY = ("can't allocate memory", "not enough memory", "Storage size calculation overflowed")


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether ``error`` means that there is not enough memory, on any device."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return isinstance(error, RuntimeError) and any(words in str(error) for words in _NO_MEMORY)


def kernel_error(where: str, error: BaseException, bottoms: Sequence[Tensor] = ()) -> RunError:
    """Return the RunError for torch's ``error`` at ``where`` in the net, in one line.

    Args:
        bottoms: the bottoms of the layer; the message shows their shapes.
    """
    given = f" (bottoms of shape {', '.join(str(tuple(b.shape)) for b in bottoms)})" if bottoms else ""
    if is_out_of_memory(error):
        return RunError(f"{where}: out of memory{given}; a smaller batch_size needs less")
    return RunError(f"{where}: {first_line_of(error)}{given}")
