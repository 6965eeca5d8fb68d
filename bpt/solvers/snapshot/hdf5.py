"""Weights and solver states in Caffe's HDF5 format: ``.caffemodel.h5`` and ``.solverstate.h5``.

Weights: a group ``/data/<layer>`` for each layer with a data set a blob (``0``, ``1``), shared ones with their owner
only; ``/diff`` likewise, with all of them. States: ``/iter``, ``/learned_net``, ``/current_step``,
``/history/<number>``, and bpt's own fields as one message in ``/bpt``, at which Caffe does not look.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from bpt.errors import BptError, FileError, WriteError
from bpt.net import Net
from bpt.proto import bpt_pb2 as pb
from bpt.proto.atomic import atomic_file
from bpt.proto.blobs import FloatArray
from bpt.solvers.snapshot.stored import (
    NO_STATE,
    NO_WEIGHTS,
    Diffs,
    StoredBlob,
    StoredLayers,
    layers_of,
    tensor_to_array,
)

if TYPE_CHECKING:
    import h5py

_OWN_FIELDS = "bpt"


def write_weights(net: Net, path: str, diffs: Diffs | None = None) -> None:
    """Write the net as Caffe's ``Net::ToHDF5`` does."""

    def fill(file: h5py.File) -> None:
        file.create_group("data")
        for node, blobs in layers_of(net, diffs):
            data = file.require_group(f"data/{node.name}")
            diff = file.require_group(f"diff/{node.name}") if diffs is not None else None
            for index, blob in enumerate(blobs):
                if blob.owner:
                    data[str(index)] = blob.data
                if diff is not None:
                    diff[str(index)] = blob.diff

    _write(path, fill)


def write_state(state: pb.SolverState, history: Sequence[Tensor], path: str) -> None:
    """Write ``state`` and ``history``."""
    own = pb.SolverState()
    own.CopyFrom(state)
    for field in ("iter", "learned_net", "current_step"):
        own.ClearField(field)

    def fill(file: h5py.File) -> None:
        file["iter"] = np.array([state.iter], np.int32)
        _put_string(file, "learned_net", state.learned_net)
        file["current_step"] = np.array([state.current_step], np.int32)
        group = file.create_group("history")
        for index, tensor in enumerate(history):
            group[str(index)] = tensor_to_array(tensor)
        file[_OWN_FIELDS] = np.frombuffer(own.SerializeToString(), np.uint8)

    _write(path, fill)


def _put_string(file: h5py.File, name: str, value: str) -> None:
    """A string as Caffe stores it: of fixed length, the closing null counted."""
    h5 = _library(file.filename)
    content = value.encode() + b"\0"
    kind = h5.h5t.C_S1.copy()
    kind.set_size(len(content))
    kind.set_strpad(h5.h5t.STR_NULLTERM)
    dataset = h5.h5d.create(file.id, name.encode(), kind, h5.h5s.create(h5.h5s.SCALAR))
    dataset.write(h5.h5s.ALL, h5.h5s.ALL, np.array(content), kind)


def _write(path: str, fill: Callable[[h5py.File], None]) -> None:
    """Write a file that ``fill`` fills, all of it or nothing."""
    # In memory first: when a disk is full, the HDF5 library fails again on closing and keeps the file open.
    content = io.BytesIO()
    try:
        with _library(path).File(content, "w", libver="earliest") as file:
            fill(file)
    except (OSError, RuntimeError, TypeError, ValueError) as error:
        if isinstance(error, BptError):
            raise
        raise WriteError(path, f"not possible in HDF5: {error}") from None
    with atomic_file(path) as out:
        out.write(content.getbuffer())


@contextlib.contextmanager
def open_weights(path: str) -> Iterator[StoredLayers]:
    """The layers in the file at ``path``, to be read while it is open.

    Raises:
        FileError: missing, damaged, or another kind of file.
    """
    with _open(path) as file:
        with _explained(path):
            data = file.get("data")
            if not _is_group(path, data):
                if "history" in file:
                    raise FileError(path, NO_WEIGHTS.format(suffix=".h5"))
                raise FileError(path, "is an HDF5 file, but no file of weights: it has no group /data")
            layers: StoredLayers = {}
            _collect(path, data, "", layers)
        yield layers


def _collect(path: str, group: Any, name: str, layers: StoredLayers) -> None:
    """Enter the layer ``name`` that ``group`` holds, and those below it: ``a/b`` lies in the group of ``a``."""
    blobs = {}
    below = {}
    for key, member in group.items():
        if _is_group(path, member):
            below[f"{name}/{key}" if name else key] = member
        elif key.isdecimal():
            blobs[int(key)] = _stored(path, member)
    if name and (blobs or not below):
        layers[name] = blobs
    for inner, member in below.items():
        _collect(path, member, inner, layers)


@contextlib.contextmanager
def open_state(path: str) -> Iterator[tuple[pb.SolverState, list[StoredBlob]]]:
    """The solver state at ``path`` and its history, to be read while the file is open.

    Raises:
        FileError: missing, damaged, or another kind of file.
    """
    with _open(path) as file:
        with _explained(path):
            state = pb.SolverState()
            if "iter" not in file or "history" not in file:
                if _is_group(path, file.get("data")):
                    raise FileError(path, NO_STATE.format(suffix=".h5"))
                raise FileError(path, "is an HDF5 file, but no solver state: it has no /iter and /history")
            if _OWN_FIELDS in file:
                state.ParseFromString(file[_OWN_FIELDS][()].tobytes())
            state.iter = int(file["iter"][0])
            state.current_step = int(file["current_step"][0])
            if "learned_net" in file:
                name = file["learned_net"][()]
                state.learned_net = name.decode() if isinstance(name, bytes) else str(name)
            # By number, not in HDF5's own order, in which 10 comes before 2.
            history = [_stored(path, file["history"][str(index)]) for index in range(len(file["history"]))]
        yield state, history


def _stored(path: str, dataset: Any) -> StoredBlob:
    def read() -> FloatArray:
        with _explained(path):
            return np.asarray(dataset[()], np.float32)

    return StoredBlob(tuple(dataset.shape), read)


def _is_group(path: str, member: object) -> bool:
    return isinstance(member, _library(path).Group)


@contextlib.contextmanager
def _open(path: str) -> Iterator[h5py.File]:
    with _explained(path):
        file = _library(path).File(path, "r", locking=False)  # locks fail on some network file systems
    with file:
        yield file


@contextlib.contextmanager
def _explained(path: str) -> Iterator[None]:
    """Errors of the HDF5 library become a FileError about ``path``."""
    try:
        yield
    except (OSError, RuntimeError, KeyError, IndexError, AttributeError, TypeError, ValueError) as error:
        if isinstance(error, BptError):
            raise
        reason = str(error).strip("'\"")
        raise FileError(path, f"is an HDF5 file, but damaged or not written by Caffe or bpt: {reason}") from None


def available() -> bool:
    """Whether the package that this module needs is there."""
    return importlib.util.find_spec("h5py") is not None


def _library(path: str) -> Any:
    """The module h5py, which is optional."""
    try:
        import h5py  # noqa: PLC0415  optional package
    except ImportError:
        raise FileError(path, "HDF5 needs the package h5py: pip install 'bpt[hdf5]'") from None
    return h5py
