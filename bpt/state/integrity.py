"""Whether the files of a snapshot are what was written: a state's own checksum, and the digest of its weights.

A state ends with its checksum: in Caffe's binary format that is its last field, and in HDF5, whose files end where they
say, the same bytes come behind. Caffe reads both. What Caffe itself wrote, or bpt before it had checksums, has none.
"""

from __future__ import annotations

import hashlib
import os
from typing import BinaryIO

from bpt.errors import FileError, WriteError
from bpt.proto import bpt_pb2 as pb
from bpt.proto.binary import write_varint

_SIZE = 16
_NAME = b"blake2b:"
_NUMBER = pb.SolverState.DESCRIPTOR.fields_by_name["checksum"].number
_MARK = write_varint(_NUMBER << 3 | 2) + write_varint(len(_NAME) + _SIZE) + _NAME
_PIECE = 2**20


def file_digest(path: str) -> bytes:
    """What tells a file's content from any other: BLAKE2b, 16 bytes. Raises OSError if it cannot be read."""
    with open(path, "rb") as file:
        return _digest(file, os.fstat(file.fileno()).st_size)


def add_checksum(path: str) -> None:
    """Let the file at ``path``, a state, end with its checksum.

    Raises:
        WriteError: that cannot be written.
    """
    try:
        digest = file_digest(path)
        with open(path, "ab") as file:
            file.write(_MARK + digest)
    except OSError as error:
        raise WriteError(path, error.strerror or error) from None


def has_checksum(path: str) -> bool:
    """Whether the state at ``path`` has a checksum, which is right then. Without, if it cannot be read.

    Raises:
        FileError: it is wrong.
    """
    try:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size - len(_MARK) - _SIZE
            file.seek(max(0, size))
            end = file.read()
            if not end.startswith(_MARK):
                return False
            file.seek(0)
            digest = _digest(file, size)
    except (OSError, ValueError):  # reading the state explains it
        return False
    if end[len(_MARK) :] != digest:
        raise FileError(path, "is damaged: its content is not that of its checksum")
    return True


def _digest(file: BinaryIO, size: int) -> bytes:
    """Of the next ``size`` bytes."""
    content = hashlib.blake2b(digest_size=_SIZE)
    while size > 0 and (piece := file.read(min(_PIECE, size))):
        content.update(piece)
        size -= len(piece)
    return content.digest()
