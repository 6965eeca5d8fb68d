"""Odd shapes, axes and numbers for layers."""

from __future__ import annotations

import torch
from hypothesis import strategies as some
from torch import Tensor

from tests.support.one_layer import Shape

LARGEST = 60  # elements of a bottom: each is a column of finite differences

sizes = some.sampled_from([1, 1, 2, 3, 4, 5, 7, 11])
factors = some.sampled_from([-2.0, -0.5, 0.3, 1.0, 1.7])
flags = some.booleans()


@some.composite
def shapes(draw: some.DrawFn, least: int = 2, most: int = 5, largest: int = LARGEST) -> Shape:
    """Between ``least`` and ``most`` axes of 1 or a small size, mostly a prime; at most ``largest`` elements."""
    shape: list[int] = []
    for _ in range(draw(some.integers(least, most))):
        size = draw(sizes)
        largest //= (size := size if size <= largest else 1)
        shape.append(size)
    return tuple(draw(some.permutations(shape)))


def axes_of(shape: Shape) -> some.SearchStrategy[int]:
    """An axis of ``shape``, counted from the first or from the last one."""
    return some.integers(-len(shape), len(shape) - 1)


@some.composite
def labels(draw: some.DrawFn, shape: Shape, classes: int) -> Tensor:
    """Integers in [0, ``classes``)."""
    number = torch.Size(shape).numel()
    drawn = draw(some.lists(some.integers(0, classes - 1), min_size=number, max_size=number))
    return torch.tensor(drawn, dtype=torch.float64).reshape(shape)
