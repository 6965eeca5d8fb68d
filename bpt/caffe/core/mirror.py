"""Mirror: a numpy array that shows a tensor, and through which the caller writes to it."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

Array = npt.NDArray[np.floating[Any]]


class Mirror:
    """The array of a tensor that passes of the net read, change, and replace by others.

    If possible, the array shares the memory of the tensor; else (on a GPU, in another memory format, if the
    tensor was replaced) over a copy. ``write_back`` before and ``show`` after whatever uses the tensor keep them
    equal. Nothing is copied for an array that the caller has dropped.

    ``Tensor.data`` rather than ``detach()`` everywhere: like Caffe's memory, an array may be written to between a
    forward pass and its backward pass, and autograd is not to see that.

    Args:
        fetch: gives the tensor as it stands now.
        copies: whether the array is always a copy.
    """

    def __init__(self, fetch: Callable[[], Tensor], copies: bool = False) -> None:
        self._fetch = fetch
        self._copies = copies
        self._host: Tensor | None = None  # what the array lies over; while it is there, the array may be written to
        self._seen: Tensor | None = None  # if that is a copy: how it was when it was last equal to the tensor
        self._array: Callable[[], Array | None] = lambda: None  # weak

    def array(self) -> Array:
        """Return the array; the same object as long as the caller keeps it and the shape stays."""
        tensor = self._fetch().data
        if self._host is None or self._host.shape != tensor.shape:
            self.forget()
            self._host = tensor.cpu().contiguous()
            if self._copies and _one_memory(self._host, tensor):
                self._host = tensor.clone()
            self._seen = None if _one_memory(self._host, tensor) else self._host.clone()
        array = self._array()
        if array is None:
            array = self._host.numpy()
            self._array = weakref.ref(array)  # views of the array keep it alive, too
        return array

    @property
    def in_use(self) -> bool:
        """Whether there is an array, or a dropped one whose changes are not written back yet."""
        return self._host is not None

    @property
    def is_referenced(self) -> bool:
        """Whether the caller holds the array, and may write to it at any time."""
        return self._array() is not None

    def write_back(self) -> None:
        """Copy what the caller has written into the tensor, before the tensor is used."""
        if self._host is not None and self._seen is not None and not torch.equal(self._host, self._seen):
            self._fetch().data.copy_(self._host)
        if self._array() is None:
            self.forget()

    def show(self) -> None:
        """After the tensor was used: put into the array what has come of it."""
        if self._host is None:
            return
        tensor = self._fetch().data
        if self._array() is None or tensor.shape != self._host.shape:
            self.forget()
        elif not _one_memory(self._host, tensor):
            self._host.copy_(tensor)
            self._seen = self._host.clone()

    def forget(self) -> None:
        """Detach the array from the tensor, because the tensor is another one now.

        The new tensor gets a new array. The caller keeps the old array, which nothing changes any more.
        """
        self._host = self._seen = None
        self._array = lambda: None


def _one_memory(a: Tensor, b: Tensor) -> bool:
    return a.data_ptr() == b.data_ptr()
