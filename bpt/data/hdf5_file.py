"""Reads rows of datasets from listed HDF5 files, and appends rows to an HDF5 file."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from bpt.base.errors import BptError, FileError, UserError, WriteError, did_you_mean
from bpt.base.native_paths import native_path, windows_hint
from bpt.base.user_files import refuse_file
from bpt.data.checksums import add_checksums
from bpt.data.sampler import Integers
from bpt.data.source import a_few, listed_lines
from bpt.graph.layer_spec import Shape, count
from bpt.system.device import CPU
from bpt.system.device.memory_use import obtainable_memory

if TYPE_CHECKING:
    import h5py


Rows = NDArray[np.float32]


class Hdf5Source:
    """The rows of ``datasets`` in all listed files, file after file; as in Caffe, one file is in memory at a time.

    Args:
        path: the list with one file a line, relative to the working directory or else to the list's folder.
        datasets: the datasets' names in each file. All datasets of a file have the same number of rows. All datasets
            of a name have rows of the same shape. Numbers of any type become float32.
        allow_external: whether to accept datasets with rows in files that are not listed.

    Raises:
        FileError: the list or a file is missing, or has another form.
        UserError: the package h5py is missing.
    """

    def __init__(self, path: str, datasets: Sequence[str], allow_external: bool = False) -> None:
        self.path = path
        self.datasets = tuple(datasets)
        self.paths = listed(path)
        counts = []
        self.row_shapes: list[Shape] = []
        for file in self.paths:
            shapes = _shapes(file, self.datasets, allow_external)
            counts.append(shapes[0][0])
            rows = [shape[1:] for shape in shapes]
            self.row_shapes = self.row_shapes or rows
            for name, row, first in zip(self.datasets, rows, self.row_shapes, strict=True):
                if row != first:
                    raise FileError(file, f'rows of "{name}" have shape {row}, those of {self.paths[0]} {first}')
        self.file_sizes = tuple(counts)
        self._ends = np.cumsum(counts)
        self._loaded: tuple[int, list[Rows]] | None = None

    def rows(self, indices: Integers) -> list[Rows]:
        """Return the rows at ``indices``, counted over all files, of each dataset: (len(indices), *row shape)."""
        result = [np.empty((len(indices), *shape), np.float32) for shape in self.row_shapes]
        files = np.searchsorted(self._ends, indices, side="right")
        for file in dict.fromkeys(files.tolist()):
            here = files == file
            local = indices[here] - (self._ends[file] - self.file_sizes[file])
            for target, values in zip(result, self._load(file), strict=True):
                target[here] = values[local]
        return result

    def _load(self, file: int) -> list[Rows]:
        if self._loaded is None or self._loaded[0] != file:
            self._loaded = None  # free the memory before the next file needs it
            with _opened(self.paths[file]) as content, np.errstate(over="ignore"):  # doubles may overflow
                self._loaded = file, [content[name][()].astype(np.float32, copy=False) for name in self.datasets]
        return self._loaded[1]

    def place(self, index: int, dataset: str) -> str:
        """Return words for row ``index`` of a dataset, counted over all files."""
        file = int(np.searchsorted(self._ends, index, side="right"))
        return f'{self.paths[file]}: row {index - (self._ends[file] - self.file_sizes[file])} of dataset "{dataset}"'

    def glance(self) -> Iterator[bytes]:
        """Yield the shapes and a few rows of a few files, for ``Comparable``."""
        yield repr((self.file_sizes, self.row_shapes)).encode()
        for file in a_few(len(self.paths)):
            with _opened(self.paths[file]) as content, np.errstate(over="ignore"):
                for name in self.datasets:
                    for row in {0, self.file_sizes[file] - 1}:
                        yield np.asarray(content[name][row], np.float32).tobytes()

    def close(self) -> None:
        """Free the memory; no file stays open."""
        self._loaded = None


def listed(path: str) -> list[Path]:
    """Return the HDF5 files that the text file at ``path`` names, at least one; raise a FileError otherwise."""
    lines = listed_lines(path, "that lists HDF5 files, one a line", "lists no HDF5 files; name one a line")
    return [file for _, line in lines for file in _files_of_line(path, line)]


def _files_of_line(listing: str, line: str) -> list[Path]:
    """Return the file of a line, whose name may contain spaces; as in Caffe, a line may also have several files."""
    names = line.split()
    if len(names) == 1 or _places(listing, line):
        return [_resolve(listing, line)]
    if not any(_places(listing, name) for name in names):
        return [_resolve(listing, line)]  # raises: the whole line is the missing file's name
    return [_resolve(listing, name) for name in names]


def _places(listing: str, name: str) -> list[Path]:
    """Return the paths at which a listed file exists."""
    # Unlike Path.exists, os.path.exists accepts impossible names.
    return [place for place in (Path(name), Path(listing).parent / name) if os.path.exists(place)]


def _resolve(listing: str, name: str) -> Path:
    if found := _places(listing, name):
        return found[0]
    places = [Path(name), Path(listing).parent / name]
    native = native_path(name, ("", os.path.dirname(listing)))
    if native != name:
        return _resolve(listing, native)
    looked = " and ".join(dict.fromkeys(str(place.absolute()) for place in places))
    raise FileError(listing, f'lists "{name}", which does not exist (looked for {looked}){windows_hint(name)}')


def import_h5py() -> ModuleType:
    """Return the module ``h5py``; raise a UserError that says how to install it if it is missing."""
    try:
        import h5py as module  # noqa: PLC0415  optional package
    except ImportError:
        raise UserError("HDF5 data needs the package h5py: pip install 'bpt[hdf5]'") from None
    found: ModuleType = module
    return found


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[h5py.File]:
    try:
        with import_h5py().File(path, "r", locking=False) as file:  # locks fail on some network file systems
            yield file
    except BptError:
        raise
    except (OSError, RuntimeError, KeyError, TypeError, ValueError, MemoryError) as error:  # h5py raises all of them
        reason = " ".join(str(error).strip("'\"").split()) or "out of memory"
        raise refuse_file(path, "an HDF5 file", f"is not an HDF5 file, or a damaged one: {reason}") from None


def _shapes(path: Path, datasets: Sequence[str], allow_external: bool) -> list[Shape]:
    """Check the datasets, and return the shape of each."""
    with _opened(path) as file:
        shapes = [_shape(path, file, name, allow_external) for name in datasets]
    if len({shape[0] for shape in shapes}) > 1:
        given = ", ".join(f'"{name}" {shape}' for name, shape in zip(datasets, shapes, strict=True))
        raise FileError(path, f"datasets have different numbers of rows: {given}")
    if not shapes[0][0]:
        raise FileError(path, "has no rows")
    return shapes


def elsewhere(file: h5py.File, dataset: h5py.Dataset) -> str:
    """Return the mechanism by which a dataset has rows outside of ``file``; "" if all rows are in it."""
    if dataset.file.filename != file.filename:
        return "an external link"
    if dataset.external:
        return "external storage"
    return "a virtual dataset" if dataset.is_virtual else ""


def _shape(path: Path, file: h5py.File, name: str, allow_external: bool) -> Shape:
    if name not in file:
        names = list(file)
        hint = did_you_mean(name, names) or f" (it has: {', '.join(names) or 'nothing'})"
        raise FileError(path, f'has no dataset "{name}", which a top is called{hint}')
    dataset = file[name]
    if not isinstance(dataset, import_h5py().Dataset):
        raise FileError(path, f'"{name}" is a group, not a dataset')
    if not allow_external and (way := elsewhere(file, dataset)):
        raise FileError(
            path,
            f'dataset "{name}" has rows in other files, through {way}, which the author of this file chose; set '
            "allow_external: true if you trust it",
        )
    if dataset.dtype.kind not in "fiu":
        raise FileError(path, f'dataset "{name}" holds {dataset.dtype}, not numbers')
    if not dataset.ndim:
        raise FileError(path, f'dataset "{name}" is a single number, not rows')
    shape: Shape = tuple(dataset.shape)
    size, memory = count(shape) * np.dtype(np.float32).itemsize / 2**30, obtainable_memory(CPU) / 2**30
    if size > memory:
        raise FileError(
            path,
            f'dataset "{name}" of shape {shape} takes {size:.1f} GiB, but there are {memory:.1f} GiB of memory',
        )
    return shape


class Hdf5Writer:
    """Writes a new file at ``path`` with the first rows, which replaces an existing file, and appends the others.

    Between two calls the file is closed and complete.

    Args:
        path: a path in an existing folder.

    Raises:
        WriteError: the folder does not exist, or ``path`` is a folder.
        UserError: the package h5py is missing.
    """

    def __init__(self, path: str) -> None:
        self._h5py = import_h5py()
        self.path = path
        self._begun = self._changed = False
        if not Path(path).absolute().parent.is_dir():
            raise WriteError(path, f'there is no folder "{Path(path).parent}"')
        if os.path.isdir(path):
            raise WriteError(path, "is a folder")

    def append(self, rows: Mapping[str, NDArray[np.floating]]) -> None:
        """Append ``rows`` (N, …) to the datasets, with the same N for all, and the same row shapes in all calls.

        Raises:
            WriteError: the file cannot be written. If the first call fails, a previous file is intact.
        """
        try:
            if self._begun:
                self._extend(rows)
            else:
                self._create(rows)
                self._begun = True
            self._changed = True
        except OSError as error:
            raise WriteError(self.path, error.strerror or error) from None

    def close(self) -> None:
        """Append checksums, which other programs ignore, to the file if there is one.

        Raises:
            WriteError: the checksums cannot be written.
        """
        if self._changed:
            add_checksums(self.path)
            self._changed = False

    def _create(self, rows: Mapping[str, NDArray[np.floating]]) -> None:
        part = f"{self.path}.{os.getpid()}.part"
        try:
            with self._h5py.File(part, "w", locking=False) as file:
                for name, values in rows.items():
                    # HDF5 needs the size of a chunk for a dataset without rows.
                    file.create_dataset(name, data=values, maxshape=(None, *values.shape[1:]), chunks=_chunks(values))
            os.replace(part, self.path)
        finally:
            Path(part).unlink(missing_ok=True)

    def _extend(self, rows: Mapping[str, NDArray[np.floating]]) -> None:
        with self._h5py.File(self.path, "r+", locking=False) as file:
            for name, values in rows.items():
                dataset = file[name]
                there = len(dataset)
                dataset.resize(there + len(values), axis=0)
                dataset[there:] = values


def _chunks(values: NDArray[np.floating]) -> tuple[int, ...]:
    """Return a chunk size with the rows of one call, so that the next call need not read a chunk to extend it."""
    return tuple(max(1, size) for size in values.shape)
