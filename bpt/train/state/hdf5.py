"""Weights and solver states in Caffe's HDF5 format: ``.caffemodel.h5`` and ``.solverstate.h5``.

Weights have a group ``/data/<layer>`` for each layer, with a data set for each blob (``0``, ``1``); shared blobs are
only in their owner's group. ``/diff`` has all blobs in the same form. HDF5 reads a name as a path, so a name that HDF5
changes is refused.

States have ``/iter``, ``/learned_net``, ``/current_step`` and ``/history/<number>``. bpt's own fields are one message
in ``/bpt``, which Caffe ignores; the memory of exchanges is in ``/memory/<number>``.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from bpt.base.atomic import atomic_path
from bpt.base.errors import BptError, FileError, LayerError, WriteError
from bpt.config.proto import bpt_pb2 as pb
from bpt.config.proto.blobs import FloatArray
from bpt.config.proto.fields import without
from bpt.data.hdf5_file import elsewhere
from bpt.graph.layer_spec import Shape, count
from bpt.graph.part import BlobSlice
from bpt.train.state.blob_gathering import PIECE, Gathered, Layers
from bpt.train.state.exchange_memory import Remembered
from bpt.train.state.hdf5_names import ByForm, check_names
from bpt.train.state.stored import (
    NO_WEIGHTS,
    StoredBlob,
    StoredLayers,
    check_finite,
    no_state,
    runs_of_rows,
    shape_string,
)

if TYPE_CHECKING:
    import h5py

_OWN_FIELDS = "bpt"
_MEMORY = "memory"
_DEEPEST = 100  # deepest nesting of groups, which is protobuf's limit for messages
_MOST_VALUES_A_BYTE = 1024  # limit of compression; a larger announced size is refused, as missing values read as zeros


def write_weights(name: str, layers: Layers, path: str) -> None:
    """Write the net as Caffe's ``Net::ToHDF5`` does, without its ``name``.

    Raises:
        FileError: a layer's name is impossible (``check_names``), or h5py is missing.
        WriteError: the file could not be written.
    """
    try:
        check_names(node for node, _ in layers)
    except LayerError as error:
        raise FileError(path, f"cannot be written: {error}") from None
    with_diffs = any(blob.diff is not None for _, blobs in layers for blob in blobs)

    def fill(file: h5py.File) -> None:
        file.create_group("data")
        for node, blobs in layers:
            data = file.require_group(f"data/{node.name}")
            diff = file.require_group(f"diff/{node.name}") if with_diffs else None
            for index, blob in enumerate(blobs):
                if blob.owner:
                    _put(data, index, blob.data)
                else:
                    blob.data.drain()
                if diff is not None and blob.diff is not None:
                    _put(diff, index, blob.diff)

    _write(path, fill)


def write_arrays(layers: Mapping[str, Sequence[FloatArray]], path: str) -> None:
    """Write the blobs of each layer, as :func:`write_weights` does.

    Raises:
        FileError: h5py is missing.
        WriteError: the file could not be written, or a layer's name is impossible.
    """

    def fill(file: h5py.File) -> None:
        file.create_group("data")
        for name, blobs in layers.items():
            group = file.require_group(f"data/{name}")
            for index, values in enumerate(blobs):
                group.create_dataset(str(index), data=values, dtype=np.float32)

    _write(path, fill)


def write_state(
    state: pb.SolverState, history: Sequence[Gathered], path: str, memory: Sequence[Remembered] = ()
) -> None:
    """Write ``state``, ``history`` and the memory of exchanges."""
    own = without(state, "iter", "learned_net", "current_step")
    own.exchange_memory.extend(entry for entry, _ in memory)

    def fill(file: h5py.File) -> None:
        file["iter"] = np.array([state.iter], np.int32)
        _put_string(file, "learned_net", state.learned_net)
        file["current_step"] = np.array([state.current_step], np.int32)
        group = file.create_group("history")
        for index, blob in enumerate(history):
            _put(group, index, blob)
        for index, (_, values) in enumerate(memory):
            _put(file.require_group(_MEMORY), index, values)
        file[_OWN_FIELDS] = np.frombuffer(own.SerializeToString(), np.uint8)

    _write(path, fill)


def _put(group: h5py.Group, index: int, blob: Gathered) -> None:
    """Write ``blob`` piece by piece, so that it need not fit into memory."""
    dataset = group.create_dataset(str(index), blob.shape, np.float32)
    for place, piece in blob.pieces():
        dataset[place] = piece


def _put_string(file: h5py.File, name: str, value: str) -> None:
    """Write a string as Caffe stores it: of fixed length, with the closing null."""
    h5 = _library(file.filename)
    content = value.encode() + b"\0"
    kind = h5.h5t.C_S1.copy()
    kind.set_size(len(content))
    kind.set_strpad(h5.h5t.STR_NULLTERM)
    settings = h5.h5p.create(h5.h5p.DATASET_CREATE)
    settings.set_obj_track_times(False)  # as h5py does: equal content, equal bytes
    dataset = h5.h5d.create(file.id, name.encode(), kind, h5.h5s.create(h5.h5s.SCALAR), settings)
    dataset.write(h5.h5s.ALL, h5.h5s.ALL, np.array(content), kind)


def _write(path: str, fill: Callable[[h5py.File], None]) -> None:
    """Write a file with the content of ``fill``, atomically."""
    library = _library(path)
    with atomic_path(path) as temporary, open(temporary, "w+b") as disk:
        out = _Calm(disk)
        try:
            with library.File(out, "w", libver="earliest") as file:
                fill(file)
        except (OSError, RuntimeError, TypeError, ValueError) as error:
            if isinstance(error, BptError):
                raise
            if out.failure is None:
                raise WriteError(path, f"not possible in HDF5: {error}") from None
        if out.failure is not None:
            raise out.failure


class _Calm(io.RawIOBase):
    """An open file that hides a full disk from the HDF5 library, and stores the failure for later.

    If the library got the error, it would fail again on closing and keep the file open.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.failure: OSError | None = None

    def write(self, data: Any) -> int:
        self._try(lambda: self._file.write(data))
        return len(data)

    def readinto(self, buffer: Any) -> int:
        return self._try(lambda: self._file.readinto(buffer))  # type: ignore[attr-defined]

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        return self._try(lambda: self._file.seek(offset, whence))

    def tell(self) -> int:
        return self._try(self._file.tell)

    def truncate(self, size: int | None = None) -> int:
        return self._try(lambda: self._file.truncate(size))

    def flush(self) -> None:
        if not self._file.closed:
            self._try(self._file.flush)

    def _try(self, do: Callable[[], int | None]) -> int:
        if self.failure is None:
            try:
                return do() or 0
            except OSError as error:
                self.failure = error
        return 0


@contextlib.contextmanager
def open_weights(path: str) -> Iterator[StoredLayers]:
    """Provide the layers in the file at ``path``, which can be read in the block.

    Raises:
        FileError: the file is missing, damaged, or of another kind.
    """
    with _open(path) as file:
        with _explained(path):
            data = file.get("data")
            if not _is_group(path, data):
                if "history" in file:
                    raise FileError(path, NO_WEIGHTS.format(suffix=".h5"))
                raise FileError(path, "is an HDF5 file, but no file of weights: it has no group /data")
            layers = ByForm(path)
            _Groups(path, file).collect(data, "", layers)
        yield layers


class _Groups:
    """The groups of an open file of weights, each entered once, because links may form circles."""

    def __init__(self, path: str, file: h5py.File) -> None:
        self._path = path
        self._file = file
        self._entered: dict[tuple[int, int], str] = {}  # address in a file → name

    def collect(self, group: h5py.Group, name: str, layers: StoredLayers, depth: int = 1) -> None:
        """Collect the layer ``name`` in ``group``, and those below it: ``a/b`` is in the group of ``a``."""
        self._enter(group, depth)
        blobs: dict[int, StoredBlob] = {}
        below = {}
        for key, member in group.items():
            if _is_group(self._path, member):
                below[f"{name}/{key}" if name else key] = member
            elif key.isdecimal():
                blobs[int(key)] = _BlobOfFile(self._path, self._file, member)
        if name and (blobs or not below):
            layers[name] = blobs
        for inner, member in below.items():
            self.collect(member, inner, layers, depth + 1)

    def _enter(self, group: h5py.Group, depth: int) -> None:
        if depth > _DEEPEST:
            raise FileError(self._path, f"its groups are nested more than {_DEEPEST} deep")
        about = _library(self._path).h5o.get_info(group.id)
        first = self._entered.setdefault((about.fileno, about.addr), group.name)
        if first != group.name:
            raise FileError(self._path, f'"{group.name}" is a link to the group "{first}"; a layer has its own group')


@contextlib.contextmanager
def open_state(path: str) -> Iterator[tuple[pb.SolverState, list[StoredBlob]]]:
    """Provide the solver state at ``path`` and its history, which can be read in the block.

    The values of ``exchange_memory`` follow the history.

    Raises:
        FileError: the file is missing, damaged, or of another kind.
    """
    with _open(path) as file:
        with _explained(path):
            state = pb.SolverState()
            if "iter" not in file or "history" not in file:
                if _is_group(path, file.get("data")):
                    raise FileError(path, no_state(".h5"))
                raise FileError(path, "is an HDF5 file, but no solver state: it has no /iter and /history")
            if _OWN_FIELDS in file:
                state.ParseFromString(_whole(path, file[_OWN_FIELDS]).tobytes())
            state.iter = int(file["iter"][0])
            state.current_step = int(file["current_step"][0])
            if "learned_net" in file:
                name = _whole(path, file["learned_net"])
                state.learned_net = name.decode() if isinstance(name, bytes) else str(name)
            # Sort by number, because in HDF5's own order 10 comes before 2.
            stored = file["history"]
            history: list[StoredBlob] = [_BlobOfFile(path, file, stored[str(index)]) for index in range(len(stored))]
            for index in range(len(state.exchange_memory)):
                history.append(_BlobOfFile(path, file, file[_MEMORY][str(index)]))
        yield state, history


def _whole(path: str, dataset: h5py.Dataset) -> Any:
    """Return the content of a small, uncompressed data set; refuse missing data, which would read as 0."""
    if dataset.size * dataset.dtype.itemsize > dataset.id.get_storage_size():
        raise FileError(path, f"announces {dataset.size} bytes in {dataset.name}, and does not have them")
    return dataset[()]


class _BlobOfFile(StoredBlob):
    """A data set in an open file; only the requested rows are read."""

    def __init__(self, path: str, file: h5py.File, dataset: Any) -> None:
        if way := elsewhere(file, dataset):
            raise FileError(
                path, f"{dataset.name} has values in other files, through {way}; copy all into one (h5repack)"
            )
        super().__init__(tuple(dataset.shape))
        self._path = path
        self._dataset = dataset

    def read(self, shape: Shape, part: BlobSlice | None = None) -> FloatArray:
        return self._read(part.index(len(shape)) if part else ())

    def check(self) -> None:
        with _explained(self._path):
            stored = self._dataset.id.get_storage_size()
        if count(self.shape) > stored * _MOST_VALUES_A_BYTE:
            raise FileError(self._path, f"holds {stored} bytes of a blob of shape {shape_string(self.shape)}")
        for start, stop in runs_of_rows(self.shape or (1,), PIECE):  # a number is one row
            values = self._read((slice(start, stop),) if self.shape else ())
            try:
                check_finite(values)
            except ValueError as error:
                raise FileError(self._path, f"{self._dataset.name}: {error}") from None

    def _read(self, place: tuple[slice, ...]) -> FloatArray:
        with _explained(self._path), np.errstate(over="ignore"):  # doubles may overflow
            return np.asarray(self._dataset[place], np.float32)


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
    """Turn errors of the HDF5 library into a FileError about ``path``."""
    try:
        yield
    except (OSError, RuntimeError, KeyError, IndexError, AttributeError, TypeError, ValueError) as error:
        if isinstance(error, BptError):
            raise
        reason = str(error).strip("'\"")
        raise FileError(path, f"is an HDF5 file, but damaged or not written by Caffe or bpt: {reason}") from None


def available() -> bool:
    """Return whether the package h5py is installed."""
    return importlib.util.find_spec("h5py") is not None


def _library(path: str) -> Any:
    """Return the module h5py, which is optional."""
    try:
        import h5py  # noqa: PLC0415  optional package
    except ImportError:
        raise FileError(path, "HDF5 needs the package h5py: pip install 'bpt[hdf5]'") from None
    return h5py
