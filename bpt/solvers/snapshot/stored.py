"""Blobs as a file holds them, whatever its format, and as a net does."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from bpt.graph.layer_graph import Node
from bpt.graph.spec import Shape, count
from bpt.net import Net
from bpt.proto.blobs import FloatArray

NO_WEIGHTS = "is a solver state, not weights; these are in the .caffemodel{suffix} file of the same name"
NO_STATE = "is a file of weights, not a solver state; give the .solverstate{suffix} file, or use --weights"

Diffs = Sequence[Tensor | None]
"""A diff for each of a graph's learnable parameters, in their order; ``None`` stands for zeros."""


@dataclass(frozen=True)
class StoredBlob:
    """A blob in a file: its shape, and how to read its values."""

    shape: Shape
    read: Callable[[], FloatArray]
    legacy: bool = False  # from the time when every blob had four axes

    def fits(self, shape: Shape) -> bool:
        """Whether a blob of ``shape`` can take the values (Caffe: ``Blob::ShapeEquals``)."""
        if self.legacy:
            return len(shape) <= 4 and self.shape == (1,) * (4 - len(shape)) + shape
        return self.shape == shape


StoredLayers = dict[str, dict[int, StoredBlob]]
"""The layers in a file of weights by name, in order: their blobs by number."""


def shape_string(shape: Shape) -> str:
    """``shape`` as Caffe prints it: ``4 2 3 3 (72)``."""
    return " ".join(map(str, (*shape, f"({count(shape)})")))


@dataclass(frozen=True)
class BlobValues:
    """One parameter blob of a net, ready to be written."""

    data: FloatArray
    diff: FloatArray | None
    owner: bool  # False: the values belong to another layer
    learnable: bool


def layers_of(net: Net, diffs: Diffs | None) -> Iterator[tuple[Node, Iterator[BlobValues]]]:
    """Each layer of ``net`` with its parameter blobs; without diffs if ``diffs`` is ``None``."""
    params = net.graph.params
    by_owner = dict(zip((param.index for param in net.graph.learnable), diffs or (), strict=bool(diffs)))

    def blobs(node: Node) -> Iterator[BlobValues]:
        for param in (params[index] for index in node.params):
            data = tensor_to_array(net.value(param)).reshape(param.shape)
            diff = None
            if diffs is not None:
                given = by_owner.get(param.owner)
                diff = np.zeros_like(data) if given is None else tensor_to_array(given).reshape(param.shape)
            yield BlobValues(data, diff, not param.shared, param.learnable)

    for node in net.graph.nodes:
        yield node, blobs(node)


def tensor_to_array(tensor: Tensor) -> FloatArray:
    """The values of ``tensor`` in row-major order; shares its memory if it is on the CPU and in that order."""
    array: FloatArray = tensor.detach().float().cpu().contiguous().numpy()
    return array
