"""The integrity of a snapshot's files: a state's own checksum.

``writing.py`` stores the digest of the weights in the state, and ``resuming.py: verify`` checks both.

A state ends with its checksum. In Caffe's binary format the checksum is the last field. An HDF5 file records its own
length, so readers ignore what follows; bpt appends the same bytes there. Caffe reads both. States of Caffe, and of bpt
before it had checksums, have none.
"""

from __future__ import annotations

import os

from bpt.base.errors import FileError, WriteError
from bpt.base.file_digest import DIGEST_SIZE, digest_of, file_digest
from bpt.config.proto import bpt_pb2 as pb
from bpt.config.proto.binary_files import write_varint

_NAME = b"blake2b:"
_NUMBER = pb.SolverState.DESCRIPTOR.fields_by_name["checksum"].number
_MARK = write_varint(_NUMBER << 3 | 2) + write_varint(len(_NAME) + DIGEST_SIZE) + _NAME


def add_checksum(path: str) -> None:
    """Append the checksum to the state file at ``path``.

    Raises:
        WriteError: the checksum cannot be written.
    """
    try:
        digest = file_digest(path)
        with open(path, "ab") as file:
            file.write(_MARK + digest)
    except OSError as error:
        raise WriteError(path, error.strerror or error) from None


def has_checksum(path: str) -> bool:
    """Return whether the state at ``path`` has a correct checksum; ``False`` if it has none or cannot be read.

    Raises:
        FileError: the checksum is wrong.
    """
    try:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size - len(_MARK) - DIGEST_SIZE
            file.seek(max(0, size))
            end = file.read()
            if not end.startswith(_MARK):
                return False
            file.seek(0)
            digest = digest_of(file, size)
    except (OSError, ValueError):  # reading the state reports it
        return False
    if end[len(_MARK) :] != digest:
        raise FileError(path, "is damaged: its content is not that of its checksum")
    return True
