"""Weights and solver states in Caffe's binary format: ``.caffemodel`` and ``.solverstate``."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from torch import Tensor

from bpt.errors import BptError, FileError, WriteError
from bpt.graph.layer_graph import Node
from bpt.net import Net
from bpt.proto import bpt_pb2 as pb
from bpt.proto.binary import read_binary, write_binary
from bpt.proto.blobs import array_to_blob, blob_shape, blob_to_array
from bpt.solvers.snapshot.stored import BlobValues, Diffs, StoredBlob, StoredLayers, layers_of, tensor_to_array

T = TypeVar("T")

_LEGACY_DIMENSIONS = ("num", "channels", "height", "width")


def write_weights(net: Net, path: str, diffs: Diffs | None = None) -> None:
    """Write the net as Caffe's ``Net::ToProto`` does: every layer, Splits too, as it was built, with its blobs."""
    message = pb.NetParameter(name=net.graph.name)
    with _too_large_for(path):
        for node, blobs in layers_of(net, diffs):
            _describe(message.layer.add(), net, node, blobs)
    write_binary(path, message)


@contextlib.contextmanager
def _too_large_for(path: str) -> Iterator[None]:
    """A blob that protobuf cannot hold becomes a WriteError about ``path``."""
    try:
        yield
    except BptError as error:
        raise WriteError(path, f"{error}; use snapshot_format: HDF5") from None


def _describe(message: pb.LayerParameter, net: Net, node: Node, blobs: Iterator[BlobValues]) -> None:
    message.CopyFrom(node.spec.param)
    del message.blobs[:]
    # What Caffe's layers write into their own text when they are set up:
    if net.layer(node).is_loss and not message.loss_weight:
        message.loss_weight.append(1)
    for index, blob in enumerate(blobs):
        if not blob.learnable and len(message.param) <= index:
            message.param.add(lr_mult=0)
        message.blobs.append(array_to_blob(blob.data, blob.diff))


def read_weights(path: str) -> StoredLayers:
    """The layers in the file at ``path``, also those of the old formats V1 and V0.

    Raises:
        FileError: missing, damaged, or another kind of file.
    """
    message = read_binary(path, pb.NetParameter)
    layers: StoredLayers = {}
    for layer in message.layer:
        layers[layer.name] = _stored_layer(path, layer.name, layer.blobs)
    for old in message.layers:
        name = old.name or old.layer.name
        layers[name] = _stored_layer(path, name, old.blobs or old.layer.blobs)
    return layers


def _stored_layer(path: str, name: str, blobs: Sequence[pb.BlobProto]) -> dict[int, StoredBlob]:
    return {index: _stored(path, f'layer "{name}"', blob) for index, blob in enumerate(blobs)}


def _stored(path: str, what: str, blob: pb.BlobProto) -> StoredBlob:
    def guarded(get: Callable[[pb.BlobProto], T]) -> T:
        try:
            return get(blob)
        except BptError as error:
            raise FileError(path, f"{what}: {error}") from None

    legacy = any(map(blob.HasField, _LEGACY_DIMENSIONS))
    return StoredBlob(guarded(blob_shape), lambda: guarded(blob_to_array), legacy)


def write_state(state: pb.SolverState, history: Sequence[Tensor], path: str) -> None:
    """Write ``state`` with ``history`` as its blobs."""
    message = pb.SolverState()
    message.CopyFrom(state)
    with _too_large_for(path):
        for tensor in history:
            message.history.append(array_to_blob(tensor_to_array(tensor)))
    write_binary(path, message)


def read_state(path: str) -> tuple[pb.SolverState, list[StoredBlob]]:
    """The solver state at ``path``, and its history.

    Raises:
        FileError: missing, damaged, or another kind of file.
    """
    state = read_binary(path, pb.SolverState)
    history = [_stored(path, f"history blob {index}", blob) for index, blob in enumerate(state.history)]
    del state.history[:]
    return state, history
