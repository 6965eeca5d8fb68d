"""Weights and solver states in Caffe's binary format: ``.caffemodel`` and ``.solverstate``."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TypeVar

from bpt.base.errors import BptError, FileError, WriteError
from bpt.config.proto import bpt_pb2 as pb
from bpt.config.proto.binary_files import read_binary, write_binary
from bpt.config.proto.blobs import FloatArray, array_to_blob, blob_shape, blob_to_array, is_legacy
from bpt.graph.layer_graph import LayerNode
from bpt.graph.layer_spec import Shape
from bpt.graph.part import BlobSlice
from bpt.nn.layers import LAYERS
from bpt.train.state.blob_gathering import BlobValues, Gathered, Layers
from bpt.train.state.exchange_memory import Remembered
from bpt.train.state.stored import StoredBlob, StoredLayers, check_finite

LOG = logging.getLogger("bpt")

T = TypeVar("T")


def write_weights(name: str, layers: Layers, path: str) -> None:
    """Write the net as Caffe's ``Net::ToProto`` does: every built layer, including Splits, with its blobs.

    The message with all blobs is in this rank's memory.
    """
    message = pb.NetParameter(name=name)
    for node, blobs in layers:
        _describe(message.layer.add(), node, blobs, path)
    write_binary(path, message)


def _describe(message: pb.LayerParameter, node: LayerNode, blobs: Sequence[BlobValues], path: str) -> None:
    message.CopyFrom(node.spec.param)
    del message.blobs[:]
    # Caffe's layers write this into their own text during their setup:
    if LAYERS[node.type].is_loss and not message.loss_weight:
        message.loss_weight.append(1)
    for index, blob in enumerate(blobs):
        if not blob.learnable and len(message.param) <= index:
            message.param.add(lr_mult=0)
        message.blobs.append(_to_message(path, blob.data, blob.diff))


def _to_message(path: str, data: Gathered, diff: Gathered | None = None) -> pb.BlobProto:
    try:
        values, diffs = data.array(), None if diff is None else diff.array()
        try:
            return array_to_blob(values, diffs)
        except BptError as error:
            raise WriteError(path, f"{error}; use snapshot_format: HDF5") from None
    except MemoryError:
        raise WriteError(path, "this format needs memory for all blobs; use snapshot_format: HDF5") from None


def read_weights(path: str) -> StoredLayers:
    """Return the layers in the file at ``path``, even in the old formats V1 and V0.

    Raises:
        FileError: the file is missing, damaged, or of another kind.
    """
    message = read_binary(path, pb.NetParameter)
    if message.layer and message.layers:
        raise FileError(path, 'has layers in an old format along with new ones ("layers" and "layer")')
    if message.layers:
        old_format = "V0" if any(old.HasField("layer") for old in message.layers) else "V1"
        LOG.info("%s: weights in Caffe's old format %sLayerParameter, which is read as today's", path, old_format)
    layers: StoredLayers = {}
    for layer in message.layer:
        layers[layer.name] = _stored_layer(path, layer.name, layer.blobs)
    for old in message.layers:
        name = old.name or old.layer.name
        layers[name] = _stored_layer(path, name, old.blobs or old.layer.blobs)
    return layers


def _stored_layer(path: str, name: str, blobs: Sequence[pb.BlobProto]) -> dict[int, StoredBlob]:
    return {index: _BlobOfMessage(path, f'layer "{name}"', blob) for index, blob in enumerate(blobs)}


class _BlobOfMessage(StoredBlob):
    """A blob in a message, which is in memory as a whole."""

    def __init__(self, path: str, what: str, blob: pb.BlobProto) -> None:
        self._path = path
        self._what = what
        self._blob = blob
        super().__init__(self._guarded(blob_shape), is_legacy(blob))

    def read(self, shape: Shape, part: BlobSlice | None = None) -> FloatArray:
        values = self._guarded(blob_to_array).reshape(shape)
        return values[part.index(len(shape))] if part else values

    def check(self) -> None:
        self._guarded(lambda blob: check_finite(blob_to_array(blob)))

    def _guarded(self, get: Callable[[pb.BlobProto], T]) -> T:
        try:
            return get(self._blob)
        except (BptError, ValueError) as error:
            raise FileError(self._path, f"{self._what}: {error}") from None


def _taken(entry: pb.ExchangeMemory) -> pb.BlobProto:
    """Return the values of the entry, and remove them from it."""
    values = pb.BlobProto()
    values.CopyFrom(entry.values)
    entry.ClearField("values")
    return values


def write_state(
    state: pb.SolverState, history: Sequence[Gathered], path: str, memory: Sequence[Remembered] = ()
) -> None:
    """Write ``state`` with ``history`` as its blobs, and the memory of exchanges."""
    message = pb.SolverState()
    message.CopyFrom(state)
    message.history.extend(_to_message(path, blob) for blob in history)
    for entry, values in memory:
        added = message.exchange_memory.add()
        added.CopyFrom(entry)
        added.values.CopyFrom(_to_message(path, values))
    write_binary(path, message)


def read_state(path: str) -> tuple[pb.SolverState, list[StoredBlob]]:
    """Return the solver state at ``path``, and its history, followed by the values of ``exchange_memory``.

    Raises:
        FileError: the file is missing, damaged, or of another kind.
    """
    state = read_binary(path, pb.SolverState)
    history: list[StoredBlob] = [
        _BlobOfMessage(path, f"history blob {index}", blob) for index, blob in enumerate(state.history)
    ]
    del state.history[:]
    for entry in state.exchange_memory:
        history.append(_BlobOfMessage(path, f'"{entry.name}" of rank {entry.rank}', _taken(entry)))
    return state, history
