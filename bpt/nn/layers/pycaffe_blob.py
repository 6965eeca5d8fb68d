"""Blobs in the form that layers written for pycaffe use: bottoms, tops, and parameters of their own."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from bpt.graph.layer_spec import Shape, count

Array = NDArray[Any]


class LegacyAxes:
    """The names of axes from the time when every blob had four: ``num``, ``channels``, ``height``, ``width``.

    A missing axis has length 1.
    """

    @property
    def shape(self) -> Shape:
        raise NotImplementedError

    @property
    def count(self) -> int:
        """The number of elements."""
        return count(self.shape)

    @property
    def num(self) -> int:
        return self._legacy(0)

    @property
    def channels(self) -> int:
        return self._legacy(1)

    @property
    def height(self) -> int:
        return self._legacy(2)

    @property
    def width(self) -> int:
        return self._legacy(3)

    def _legacy(self, axis: int) -> int:
        return self.shape[axis] if axis < len(self.shape) else 1


class PycaffeBlob(LegacyAxes):
    """A bottom or a top: ``data`` and ``diff`` are arrays of one shape. A bottom's ``data`` is read-only."""

    def __init__(self, data: Array) -> None:
        self.data = data
        self._diff: Array | None = None

    @property
    def diff(self) -> Array:
        """The gradient; it is zero until something is written."""
        if self._diff is None or self._diff.shape != self.data.shape:
            self._diff = np.zeros_like(self.data)
        return self._diff

    @property
    def shape(self) -> Shape:
        return self.data.shape

    def reshape(self, *shape: int) -> None:
        """Give a top another shape. Its values are lost if its number of elements changes."""
        if tuple(shape) != self.shape:
            kept = count(shape) == self.count
            self.data = self.data.reshape(shape) if kept else np.zeros(shape, self.data.dtype)

    def reshape_like(self, other: PycaffeBlob) -> None:
        """Give a top the shape of another blob."""
        self.reshape(*other.shape)


class OwnBlob(LegacyAxes):
    """A parameter of the layer. Until a net has given it ``values``, ``data`` is an array of its own."""

    def __init__(self, shape: Shape) -> None:
        self._array = np.zeros(shape, np.float32)
        self._values: nn.Parameter | None = None
        self._gradient: Array | None = None  # during the layer's backward

    def belong_to(self, values: nn.Parameter) -> None:
        """Show ``values`` from now on."""
        self._values = values

    @property
    def values(self) -> torch.Tensor:
        """The parameter, or its first values before a net owns it."""
        return torch.from_numpy(self._array) if self._values is None else self._values

    @property
    def shape(self) -> Shape:
        return self._array.shape

    def reshape(self, *shape: int) -> None:
        """Give the parameter another shape, filled with zeros; in ``setup`` only."""
        assert self._values is None, "a parameter keeps the shape that setup has given it"
        self._array = np.zeros(shape, np.float32)

    @property
    def data(self) -> Array:
        """The parameter's own memory on a CPU; otherwise a copy, which ``begin_pass`` and ``end_pass`` keep equal."""
        if self._values is None or not self._on_cpu:
            return self._array
        return self._values.detach().view(self.shape).numpy()

    @property
    def diff(self) -> Array:
        """The gradient; in ``backward`` the summand that the layer adds to it, from zeros on."""
        if self._gradient is not None:
            return self._gradient
        if self._values is None:
            return np.zeros_like(self._array)
        if self._values.grad is None:
            self._values.grad = torch.zeros_like(self._values)
        return self._values.grad.cpu().view(self.shape).numpy()

    @property
    def _on_cpu(self) -> bool:
        return self._values is not None and self._values.device.type == "cpu"

    def begin_pass(self) -> None:
        if self._values is not None and not self._on_cpu:
            self._array = self._values.detach().cpu().view(self.shape).numpy()

    def end_pass(self) -> None:
        if self._values is not None and not self._on_cpu:
            with torch.no_grad():
                self._values.view(self.shape).copy_(torch.from_numpy(self._array))

    def begin_backward(self) -> None:
        self._gradient = np.zeros_like(self.data)

    def end_backward(self) -> Array:
        """Return the gradient that the layer has written."""
        assert self._gradient is not None
        gradient, self._gradient = self._gradient, None
        return gradient


class OwnBlobs(list[OwnBlob]):
    """The ``blobs`` of a layer, which its ``setup`` makes."""

    def add_blob(self, *shape: int) -> None:
        """Add a parameter of this shape, of zeros until ``setup`` fills it."""
        self.append(OwnBlob(shape))
