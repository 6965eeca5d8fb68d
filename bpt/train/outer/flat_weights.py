"""FlatWeights: all blobs of a net in one buffer, as they travel between server and workers."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import numpy as np
import torch
from torch import Tensor

from bpt.config.precision import array_type
from bpt.nn.net import Net
from bpt.system.comm.base import Buffer


class FlatWeights:
    """Copies the blobs of ``net`` to buffers and back.

    The trained blobs come first, then those that passes update, such as a BatchNorm's statistics, both in the order of
    the net. Equal nets have equal buffers, in any memory layout.

    Attributes:
        size: number of elements of a buffer.
        trained: number of trained elements, which are at the front.
        places: for each blob, in order: whether it is not trained, its Param.index, its elements. The sorted places of
            all ranks of a replica are those of the whole net.
        dtype: type of the elements.
    """

    def __init__(self, net: Net) -> None:
        values = sorted(
            ((not net.value(param).requires_grad, param.index, net.value(param)) for param in net.local_params),
            key=lambda value: value[:2],
        )
        self._values = [value for _, _, value in values]
        self.places = tuple((kept, index, value.numel()) for kept, index, value in values)
        sizes = [size for _, _, size in self.places]
        self._ends = list(accumulate(sizes))
        self.size = sum(sizes)
        self.trained = sum(size for kept, _, size in self.places if not kept)
        self.dtype = array_type(net.context.precision.master)

    def zeros(self) -> Buffer:
        """Return a new buffer of zeros."""
        return np.zeros(self.size, self.dtype)

    def pack(self) -> Buffer:
        """Return a new buffer with the blobs."""
        return self._packed([value.detach() for value in self._values])

    def load(self, buffer: Buffer) -> None:
        """Overwrite the blobs with the values in ``buffer``."""
        assert buffer.shape == (self.size,) and buffer.dtype == self.dtype, (buffer.shape, buffer.dtype, self.size)
        with torch.no_grad():
            for value, piece in zip(self._values, self._cut(buffer), strict=True):
                value.copy_(piece.view(value.shape))

    def add_gradients(self, buffer: Buffer) -> None:
        """Add the gradients to the front of ``buffer``, and copy the untrained blobs to its rest."""
        pieces = self._cut(buffer)
        with torch.no_grad():
            for value, piece in zip(self._values, pieces, strict=True):
                if not value.requires_grad:
                    piece.copy_(value.detach().reshape(-1))
                elif value.grad is not None:
                    piece.add_(value.grad.reshape(-1).to(piece.device))

    def set_gradients(self, buffer: Buffer) -> None:
        """Set the gradients, and the untrained blobs, to the values that ``add_gradients`` has gathered."""
        with torch.no_grad():
            for value, piece in zip(self._values, self._cut(buffer), strict=True):
                if value.requires_grad:
                    value.grad = piece.view(value.shape).to(value.device, copy=True)
                else:
                    value.copy_(piece.view(value.shape))

    def _packed(self, tensors: Sequence[Tensor]) -> Buffer:
        buffer = np.empty(self.size, self.dtype)
        for tensor, piece in zip(tensors, self._cut(buffer), strict=True):
            piece.copy_(tensor.reshape(-1))
        return buffer

    def _cut(self, buffer: Buffer) -> list[Tensor]:
        """Return each blob's part of ``buffer``, flat, in shared memory."""
        whole = torch.from_numpy(buffer)
        return [whole[end - value.numel() : end] for value, end in zip(self._values, self._ends, strict=True)]
