"""Digests that identify the content of a file: BLAKE2b, 16 bytes."""

from __future__ import annotations

import hashlib
import os
from typing import BinaryIO

DIGEST_SIZE = 16  # bytes
_PIECE = 2**20


def file_digest(path: str) -> bytes:
    """Return the digest of the file at ``path``.

    Raises:
        OSError: the file cannot be read.
    """
    with open(path, "rb") as file:
        return digest_of(file, os.fstat(file.fileno()).st_size)


def file_fact(path: str) -> str:
    """Return 16 hexadecimal digits of the digest of the file at ``path``; "missing" if it cannot be read."""
    try:
        return file_digest(path)[:8].hex()
    except OSError:
        return "missing"


def digest_of(file: BinaryIO, size: int) -> bytes:
    """Return the digest of the next ``size`` bytes of ``file``."""
    content = hashlib.blake2b(digest_size=DIGEST_SIZE)
    while size > 0 and (piece := file.read(min(_PIECE, size))):
        content.update(piece)
        size -= len(piece)
    return content.digest()
