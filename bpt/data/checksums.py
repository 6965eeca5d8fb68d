"""Checksums at the end of a data file, one for each 4 KiB, which find damage and its place.

LMDBs and HDF5 files record their own size. So Caffe, older versions of bpt and all other programs read them as before,
and a program that continues to write to the file drops the list or overwrites it. Training does not check the list;
``bpt doctor --data`` does.

The list has a CRC-32 for each piece. Then follow two copies of the trailer, because a flipped bit may hit one: a name,
the sizes of a piece and of the file without its list, and a BLAKE2b of all that.
"""

from __future__ import annotations

import hashlib
import os
import struct
import zlib
from collections.abc import Callable, Iterator
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from bpt.base.errors import FileError, WriteError

PIECE = 4096
"""Bytes: a page of an LMDB."""

_TOGETHER = 256  # pieces in one read
_NAME = b"bptcrc32"
_HEAD = struct.Struct("<8sIQ")
_DIGEST = 16
_END = _HEAD.size + _DIGEST

Tell = Callable[[int], object]
"""A function that gets the number of further bytes that have been checked."""


def add_checksums(path: str | os.PathLike[str]) -> None:
    """Append checksums to the file at ``path``, while no one else writes to it.

    Raises:
        WriteError: they cannot be written.
    """
    try:
        with open(path, "r+b") as file:
            size = os.fstat(file.fileno()).st_size
            table = np.fromiter(_sums(file, size), "<u4").tobytes()
            head = _HEAD.pack(_NAME, PIECE, size)
            end = head + _digest(table, head)
            file.seek(size)
            file.write(table + end + end)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise WriteError(path, error.strerror or error) from None


def damaged_pieces(path: str | os.PathLike[str], tell: Tell = lambda size: None) -> tuple[int, ...] | None:
    """Return the numbers of the damaged pieces of the file at ``path``.

    Returns:
        The pieces whose checksums differ from those written; ``None`` if the file has no checksums.

    Raises:
        FileError: the list of checksums itself is damaged, or something was written to the file after it.
        OSError: the file cannot be read.
    """
    with open(path, "rb") as file:
        whole = os.fstat(file.fileno()).st_size
        if whole < 2 * _END:
            return None
        file.seek(whole - 2 * _END)
        ends = file.read(_END), file.read(_END)
        sizes = [_size_of(end, whole) for end in ends]
        size = sizes[0] if sizes[1] is None else sizes[1]
        if size is None:
            return None
        file.seek(size)
        table = file.read(whole - 2 * _END - size)
        if ends[0] != ends[1] or _digest(table, ends[0][: _HEAD.size]) != ends[0][_HEAD.size :]:
            raise FileError(path, "the list of its checksums is damaged, or something was written to it after that")
        file.seek(0)
        written: NDArray[np.uint32] = np.frombuffer(table, "<u4")
        found = np.fromiter(_sums(file, size, tell), "<u4")
    return tuple(np.flatnonzero(found != written).tolist())


def _size_of(end: bytes, whole: int) -> int | None:
    """Return the size of the file without its list, from the trailer ``end``; ``None`` if this is not a trailer."""
    name, piece, size = _HEAD.unpack_from(end)
    pieces = -(-size // PIECE)
    fits = name == _NAME and piece == PIECE and size + 4 * pieces + 2 * _END == whole
    return int(size) if fits else None


def _sums(file: BinaryIO, size: int, tell: Tell = lambda size: None) -> Iterator[int]:
    """Yield the checksum of each piece of the next ``size`` bytes; raise an OSError if the file is shorter."""
    while size > 0:
        content = memoryview(file.read(min(PIECE * _TOGETHER, size)))
        if not content:
            raise OSError("it was truncated while it was read")
        for start in range(0, len(content), PIECE):
            yield zlib.crc32(content[start : start + PIECE])
        size -= len(content)
        tell(len(content))


def _digest(*parts: bytes) -> bytes:
    return hashlib.blake2b(b"".join(parts), digest_size=_DIGEST).digest()
