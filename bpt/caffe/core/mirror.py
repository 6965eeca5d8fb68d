"""Mirror: a numpy array through which the caller reads and writes a tensor."""

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
    """The array of a tensor that passes of the net read, change and replace.

    The array shares the tensor's memory if possible. It is a copy if the tensor is on a GPU, has another memory format,
    or was replaced. ``write_back`` before each use of the tensor and ``show`` after it keep the two equal. Nothing is
    copied for an array that the caller has dropped.

    The code uses ``Tensor.data`` and not ``detach()``: as in Caffe, the caller may write to an array between a forward
    pass and its backward pass, and autograd must not notice.

    Args:
        fetch: returns the current tensor.
        copies: whether the array is always a copy.

    Attributes:
        in_use: whether there is an array, or a dropped one whose changes are not written back yet.
    """

    def __init__(self, fetch: Callable[[], Tensor], copies: bool = False) -> None:
        self._fetch = fetch
        self._copies = copies
        self._host: Tensor | None = None  # the array's memory; None if there is no array with unsaved changes
        self._seen: Tensor | None = None  # if _host is a copy: its values when it was last equal to the tensor
        self._array: Callable[[], Array | None] = lambda: None  # a weak reference
        self.in_use = False  # an attribute, since each pass asks for it at each mirror

    def array(self) -> Array:
        """Return the array; it is the same object as long as the caller keeps it and the shape does not change."""
        tensor = self._fetch().data
        if self._host is None or self._host.shape != tensor.shape:
            self.forget()
            self._host = tensor.cpu().contiguous()
            self.in_use = True
            if self._copies and _one_memory(self._host, tensor):
                self._host = tensor.clone()
            self._seen = None if _one_memory(self._host, tensor) else self._host.clone()
        array = self._array()
        if array is None:
            array = self._host.numpy()
            self._array = weakref.ref(array)  # views of the array keep it alive, too
        return array

    @property
    def is_referenced(self) -> bool:
        """Whether the caller holds the array, and may write to it at any time."""
        return self._array() is not None

    def write_back(self) -> None:
        """Copy the caller's changes from the array into the tensor. Call it before the tensor is used."""
        if self._host is not None and self._seen is not None and not torch.equal(self._host, self._seen):
            self._fetch().data.copy_(self._host)
        if self._array() is None:
            self.forget()

    def show(self) -> None:
        """Copy the tensor's values into the array. Call it after the tensor was used."""
        if self._host is None:
            return
        tensor = self._fetch().data
        if self._array() is None or tensor.shape != self._host.shape:
            self.forget()
        elif not _one_memory(self._host, tensor):
            self._host.copy_(tensor)
            self._seen = self._host.clone()

    def forget(self) -> None:
        """Detach the array from the tensor.

        The next call of ``array`` makes a new array. Passes no longer change the array that the caller keeps.
        """
        self._host = self._seen = None
        self._array = lambda: None
        self.in_use = False


def _one_memory(a: Tensor, b: Tensor) -> bool:
    return a.data_ptr() == b.data_ptr()
