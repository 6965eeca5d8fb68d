"""Blob: data and diff of a blob or a parameter as numpy arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from bpt.apps.arguments import checked_sizes, shown
from bpt.base.errors import UserError
from bpt.caffe.core.mirror import Array, Mirror
from bpt.caffe.core.operator import BlobOperator
from bpt.caffe.core.single import Single
from bpt.graph.layer_spec import Shape
from bpt.nn.layers.pycaffe_blob import LegacyAxes


class Mirrors(NamedTuple):
    """The mirrors of a blob's two tensors."""

    data: Mirror
    diff: Mirror


class Blob(LegacyAxes, Single):
    """A blob or a parameter of a Net: ``data`` and ``diff``, arrays in its shape and the net's precision.

    The caller may write to both (``blob.data[...] = x``), and the next pass uses the new values. An array that the
    caller keeps over a pass shows the pass's result afterwards.
    """

    _no_copy = "a Blob of a net cannot be copied or pickled: copy its numbers, blob.data.copy()"

    def __init__(self, shape: Callable[[], Shape], mirrors: Mirrors, reshape: Callable[[Shape], None]) -> None:
        self._shape, self._mirrors, self._reshape = shape, mirrors, reshape

    @property
    def data(self) -> Array:
        return self._mirrors.data.array().reshape(self.shape)

    @property
    def diff(self) -> Array:
        return self._mirrors.diff.array().reshape(self.shape)

    @property
    def shape(self) -> Shape:
        return self._shape()

    def __repr__(self) -> str:
        return f"<Blob {self.shape}: {np.array2string(self.data, threshold=6, edgeitems=2, precision=4)}>"

    def reshape(self, *shape: int) -> None:
        """Change the shape of an input of the net, and fill it with zeros.

        ``net.reshape()``, or the next forward pass, adapts the shapes of the other blobs.

        Raises:
            UserError: this blob is not an input, or an extent is not a whole number.
        """
        given: tuple[object, ...] = shape
        if len(given) == 1 and isinstance(given[0], tuple | list):
            raise UserError(f"reshape takes the extents one by one: reshape(*{shown(given[0])})")
        self._reshape(checked_sizes(shape, "reshape: the extents"))


def net_mirrors(operator: BlobOperator, name: str) -> Mirrors:
    """Return the mirrors of the blob ``name`` of the operator's net."""
    graph = operator.net.graph
    edge = graph.blobs[name].index
    # The backward pass of an in-place layer may need the data that the layer has replaced: the array must be a copy.
    rewritten = sum(version.blob == name for version in graph.edges) > 1
    return Mirrors(Mirror(lambda: operator.watch(edge), copies=rewritten), Mirror(lambda: operator.diff(edge)))


def net_blob(operator: BlobOperator, name: str, mirrors: Mirrors) -> Blob:
    """Return the blob ``name`` of the operator's net."""
    graph = operator.net.graph
    edge = graph.blobs[name].index

    def reshape(shape: Shape) -> None:
        if name not in graph.inputs:
            inputs = ", ".join(graph.inputs) or "it has none"
            raise UserError(f'blob "{name}" is not an input of the net ({inputs}): its shape follows from them')
        if shape != operator.shape(edge):
            operator.diffs.pop(edge, None)
            operator.feed({edge: torch.zeros(shape, dtype=operator.number)})
            for mirror in mirrors:
                mirror.forget()

    return Blob(lambda: operator.shape(edge), mirrors, reshape)


def param_mirrors(operator: BlobOperator, value: nn.Parameter) -> Mirrors:
    """Return the mirrors of a parameter, which several layers may share."""

    def grad() -> Tensor:
        if value.grad is None:
            value.grad = torch.zeros_like(value)
        return value.grad

    return Mirrors(Mirror(lambda: operator.parameter(value)), Mirror(grad))


def param_blob(shape: Shape, mirrors: Mirrors) -> Blob:
    """Return the Blob of a parameter, in the shape that its layer gives it."""

    def reshape(other: Shape) -> None:
        raise UserError("the shape of a parameter follows from the network's text")

    return Blob(lambda: shape, mirrors, reshape)
