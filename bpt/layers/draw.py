"""Random numbers of a forward pass."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from bpt.context import RunContext


def draw_uniform(context: RunContext, shape: Sequence[int], device: torch.device, *key: str) -> Tensor:
    """Float32 numbers in [0, 1) that belong to this forward pass and to ``key`` (what for, layer name).

    They are contiguous, so an element's number does not depend on the memory format of a bottom.
    """
    numbers: Tensor = _draw(context, tuple(shape), device, key)
    return numbers


@torch.compiler.disable  # type: ignore[untyped-decorator]  # torch cannot trace a generator that is made anew
def _draw(context: RunContext, shape: tuple[int, ...], device: torch.device, key: tuple[str, ...]) -> Tensor:
    return torch.rand(shape, generator=context.pass_generator(*key, device=device), device=device)
