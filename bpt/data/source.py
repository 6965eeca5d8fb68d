"""What every source of images offers, whatever its format; and what may be wrong with the folder of its files."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

Image: TypeAlias = NDArray[np.uint8] | NDArray[np.float32]
"""An image (C, H, W). Color images have the channels blue, green, red, as in Caffe."""


class Sample(NamedTuple):
    """One record of a source; ``key`` is its name in messages."""

    key: str
    image: Image
    label: float


class Source(Protocol):
    """A finite list of samples. Used by one thread at a time, but for what ``begin`` returns."""

    path: str  # as the user wrote it, for messages

    def __len__(self) -> int: ...

    def read(self, index: int) -> Sample:
        """Sample ``index`` of ``[0, len)``; a DataError names path and record if it cannot be used."""

    def begin(self, index: int) -> Callable[[], Sample]:
        """Do the part of ``read`` that must be done in order; any thread may do the rest, by calling the result."""

    def close(self) -> None:
        """Give the files back. The source is not used afterwards."""


def slash_remedy(root: str) -> str:
    """Ends a message that shows ``root``: to write a slash, if it is a folder and its name lacks that; else ``""``."""
    return f', so write "{root}/"' if os.path.isdir(root) and not root.endswith("/") else ""


def slash_hint(root: str, name: str) -> str:
    """Ends a message that the image ``root`` + ``name`` cannot be read; ``""`` if no slash is missing between them."""
    remedy = slash_remedy(root)
    if not remedy or name.startswith("/") or os.path.exists(root + name):
        return ""
    return f'; paths begin with the root folder as it is, "{root}"{remedy}'
