"""Parameters that are updated together, as parallel lists of tensors for torch's ``_foreach`` operations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from torch import Tensor

from bpt.engine.optim.tensor_layout import split

PIECE = 2**18  # elements: a few runs of 1 MiB stay in the cache, and are worth the calls


@dataclass(frozen=True)
class TensorGroup:
    """Weights, gradients and moments (as many lists as the rule has), all in the weights' order and layout."""

    weights: list[Tensor]
    gradients: list[Tensor]
    moments: tuple[list[Tensor], ...]

    def pieces(self) -> Iterator[TensorGroup]:
        """Yield the same elements in groups that fit into a core's cache, which all passes except the first use.

        On a GPU, where every operation on many tensors is a single kernel, yield the group itself.
        """
        if self.weights[0].device.type != "cpu":
            yield self
            return
        small: list[int] = []
        elements = 0
        for index, weight in enumerate(self.weights):
            if weight.numel() > PIECE:
                yield from self._split(index)
                continue
            if elements + weight.numel() > PIECE:
                yield self._pick(small)
                small, elements = [], 0
            small.append(index)
            elements += weight.numel()
        if small:
            yield self._pick(small)

    def rows(self, first: int, last: int) -> TensorGroup:
        """Return views of the elements ``first`` to ``last`` of axis 0 of all tensors."""

        def cut(tensors: list[Tensor]) -> list[Tensor]:
            return [tensor[first:last] for tensor in tensors]

        return TensorGroup(cut(self.weights), cut(self.gradients), tuple(map(cut, self.moments)))

    def _pick(self, indices: Sequence[int]) -> TensorGroup:
        def pick(tensors: list[Tensor]) -> list[Tensor]:
            return [tensors[index] for index in indices]

        return TensorGroup(pick(self.weights), pick(self.gradients), tuple(map(pick, self.moments)))

    def _split(self, index: int) -> Iterator[TensorGroup]:
        columns = (self.weights, self.gradients, *self.moments)
        for weight, gradient, *moments in zip(*(split(column[index], PIECE) for column in columns), strict=True):
            yield TensorGroup([weight], [gradient], tuple([moment] for moment in moments))
