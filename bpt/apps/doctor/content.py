"""Digests of data sets and files, which ranks compare. They cover a sample, so that a check takes seconds."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

from bpt.base.errors import DataError, FileError, UserError
from bpt.base.log import plural
from bpt.data.hdf5_file import Hdf5Source
from bpt.data.image_source import ImageSource
from bpt.data.lmdb_file import open_lmdb
from bpt.data.lmdb_pages import DamagedError
from bpt.data.nifti import open_nifti
from bpt.data.transform import read_mean
from bpt.data.volume_source import list_volumes

if TYPE_CHECKING:
    from hashlib import blake2b

_ENDS = 4  # records at either end of an LMDB
_BETWEEN = 16  # records between the ends of an LMDB; also the number of pieces of other files
_PIECE = 2**20  # bytes of a large file


@dataclass(frozen=True)
class Content:
    """The content of a file: its amount in words, and a digest of a sample of it."""

    amount: str
    digest: str


def lmdb_content(path: str) -> Content:
    """Return the content of the LMDB at ``path``: its number of records, and some of them from all parts.

    Raises:
        FileError: it is missing, not an LMDB, empty, truncated or damaged.
    """
    file = open_lmdb(path)
    content = hashlib.blake2b(digest_size=8)
    try:
        ends = []
        for backwards in (False, True):
            records = chain.from_iterable(file.leaves(backwards))
            ends.append([(entry.key, file.value(entry)) for entry in islice(records, _ENDS)])
        for key, value in chain(*ends):
            _add(content, key, value)
        for wanted in _keys_between(ends[0][0][0], ends[1][0][0]):
            if entry := file.first_from(wanted):
                _add(content, entry.key, file.value(entry))
    except (DamagedError, OSError) as error:
        raise FileError(path, f"is a damaged LMDB: {error}; copy or make it again") from None
    finally:
        file.close()
    return Content(plural(file.meta.entries, "record"), content.hexdigest())


def lmdb_bytes(path: str) -> int:
    """Return the approximate number of bytes of the records of the LMDB at ``path``, with their keys.

    Raises:
        FileError: it is missing, not an LMDB, empty, truncated or damaged.
    """
    file = open_lmdb(path)
    file.close()
    return (file.meta.leaf_pages + file.meta.large_pages) * file.meta.page_size


def _keys_between(first: bytes, last: bytes) -> list[bytes]:
    """Return evenly spaced keys between two keys; the LMDB need not contain them."""
    length = max(len(first), len(last))
    low, high = (int.from_bytes(key.ljust(length, b"\0"), "big") for key in (first, last))
    parts = _BETWEEN + 1
    return [(low + (high - low) * part // parts).to_bytes(length, "big") for part in range(1, parts)]


def hdf5_content(path: str, datasets: Sequence[str], allow_external: bool = False) -> Content:
    """Return the content of the HDF5 files that the list at ``path`` names: their sizes, and some rows of some files.

    Raises:
        FileError: the list or a file is missing, or an HDF5Data layer cannot read it.
        UserError: the package h5py is missing.
    """
    source = Hdf5Source(path, datasets, allow_external)
    import h5py  # noqa: PLC0415  optional package; Hdf5Source has checked that it is installed

    content = hashlib.blake2b(digest_size=8)
    _add(content, repr((source.file_sizes, source.row_shapes)).encode())
    for index in _spread(len(source.paths)):
        try:
            with h5py.File(source.paths[index], "r", locking=False) as file:
                for name in datasets:
                    for row in (0, source.file_sizes[index] // 2, source.file_sizes[index] - 1):
                        _add(content, file[name][row].astype("<f4").tobytes())
        except OSError as error:
            raise FileError(source.paths[index], f"is a damaged HDF5 file: {error}; copy or make it again") from None
    amount = f"{sum(source.file_sizes)} rows in {plural(len(source.file_sizes), 'file')}"
    return Content(amount, content.hexdigest())


def volume_content(path: str, root_folder: str) -> Content:
    """Return the content of the list of NIfTI volumes at ``path``: the labels, and some of the files.

    Args:
        path: the list.
        root_folder: the folder of relative paths; empty: the list's folder.

    Raises:
        FileError: the list or a file is missing, or a VolumeData layer cannot read it.
        UserError: the package nibabel is missing.
    """
    entries = list_volumes(path, root_folder)
    content = hashlib.blake2b(digest_size=8)
    _add(content, repr([entry.label for entry in entries]).encode())
    for index in _spread(len(entries)):
        entry = entries[index]
        try:
            open_nifti(entry.path)
            _add(content, file_content(str(entry.path)).digest.encode())
        except FileError as error:
            raise FileError(entry.place, str(error)) from None
    labels = {entry.label for entry in entries}
    return Content(f"{plural(len(entries), 'volume')} with {plural(len(labels), 'label')}", content.hexdigest())


def image_content(path: str, root_folder: str) -> Content:
    """Return the content of the list of image files at ``path``: the list, and the pixels of some images.

    Args:
        path: the list.
        root_folder: the text before each path.

    Raises:
        UserError: the list or a file is missing, an ImageData layer cannot read it, or Pillow is missing.
    """
    source = ImageSource(path, root_folder=root_folder)
    content = hashlib.blake2b(file_content(path).digest.encode(), digest_size=8)
    for index in _spread(len(source)):
        try:
            _add(content, source.read(index).image.tobytes())
        except DataError as error:
            raise UserError(str(error)) from None
    return Content(plural(len(source), "image"), content.hexdigest())


def mean_content(path: str) -> Content:
    """Return the content of the mean image in the file at ``path``.

    Raises:
        FileError: the file is missing or no mean image.
    """
    mean = read_mean(path)
    content = hashlib.blake2b(mean.astype("<f4").tobytes(), digest_size=8)
    return Content(f"an image of {'×'.join(map(str, mean.shape))}", content.hexdigest())


def file_content(path: str) -> Content:
    """Return the content of a file: its size, and all bytes of a small file or pieces of a large one.

    Raises:
        FileError: the file is missing or cannot be read.
    """
    content = hashlib.blake2b(digest_size=8)
    try:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            pieces = -(-size // _PIECE)
            for piece in _spread(pieces):
                file.seek(piece * _PIECE)
                _add(content, file.read(_PIECE))
    except OSError as error:
        looked = "" if os.path.isabs(path) else f" (looked for {os.path.abspath(path)})"
        reason = "no such file" if isinstance(error, FileNotFoundError) else error.strerror or str(error)
        raise FileError(path, f"{reason}{looked}") from None
    return Content(f"{size} bytes", content.hexdigest())


def _spread(number: int) -> list[int]:
    """Return at most ``_BETWEEN`` of the first ``number`` integers, with the first and the last."""
    if number <= _BETWEEN:
        return list(range(number))
    return [part * (number - 1) // (_BETWEEN - 1) for part in range(_BETWEEN)]


def _add(content: blake2b, *parts: Any) -> None:
    """Add bytes with their lengths to the digest, so that different parts never give the same digest."""
    for part in parts:
        content.update(len(part).to_bytes(8, "big"))
        content.update(part)


ReadContent = Callable[[], Content]
