"""Slices of parameters: ranks that hold the same ones divide their update, and each has the moments of its slice.

A slice is a run of a parameter's elements in row-major order. It depends on the parameter and the ranks only, and not
on segments or messages, so moments never move.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import torch
from torch import Tensor, nn

from bpt.graph.part import slice_bounds

Elements = tuple[int, int]
"""The elements ``[start, stop)`` of a blob in row-major order."""


class WeightSlice:
    """The slice of a parameter that this rank updates.

    Args:
        parameter: on this rank as a whole.
        rank: this rank's number among those that divide the parameter.
        places: for each of these ranks the place of its slice among all.
        device: where the slice is updated; by default where the parameter is.

    Attributes:
        bounds: the elements of each of these ranks.
        elements: those of this rank.
        value: the weights of the slice as one row, whose ``.grad`` the update rule reads. It shares the parameter's
            memory where it can.
    """

    def __init__(
        self, parameter: nn.Parameter, rank: int, places: Sequence[int], device: torch.device | None = None
    ) -> None:
        self.parameter = parameter
        runs = slice_bounds(parameter.numel(), len(places))
        self.bounds = [runs[place] for place in places]
        self.elements: Elements = self.bounds[rank]
        self._device = device or parameter.device
        self.value = nn.Parameter(self._current())

    def _current(self) -> Tensor:
        row = self.parameter.detach().reshape(-1)
        return row[slice(*self.elements)].to(self._device)

    def read(self) -> None:
        """Let ``value`` be the parameter's weights, which are those of all ranks."""
        self.value.data = self._current()

    @property
    def is_apart(self) -> bool:
        """Whether the slice is updated on another device than the parameter's, where it stays."""
        return self._device != self.parameter.device


class WeightSlices:
    """The slices that this rank updates; parameters without one are updated as a whole."""

    def __init__(self, slices: Iterable[WeightSlice] = ()) -> None:
        self._of = {id(each.parameter): each for each in slices}

    def __bool__(self) -> bool:
        return bool(self._of)

    def __iter__(self) -> Iterator[WeightSlice]:
        return iter(self._of.values())

    def of(self, parameter: nn.Parameter) -> WeightSlice | None:
        """Return the slice of a parameter; ``None``: this rank updates the whole parameter."""
        return self.of_id(id(parameter))

    def of_id(self, number: int) -> WeightSlice | None:
        """Return the slice of the parameter whose ``id`` is ``number``."""
        return self._of.get(number)

    def read(self, here: bool = False) -> None:
        """Let all slices be the weights of their parameters; only those on the parameters' device if ``here``."""
        for each in self:
            if not (here and each.is_apart):
                each.read()


NO_SLICES = WeightSlices()
