"""Returns the pixels of a Pillow image as an array, without a copy where Pillow can share them."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from PIL.Image import Image

_STORED = 4  # bytes that Pillow keeps for a pixel of red, green and blue


class _ArrowArray(ctypes.Structure):
    """The C structure of that name of Apache Arrow's C data interface."""


_ArrowArray._fields_ = [
    ("length", ctypes.c_int64),
    ("null_count", ctypes.c_int64),
    ("offset", ctypes.c_int64),
    ("n_buffers", ctypes.c_int64),
    ("n_children", ctypes.c_int64),
    ("buffers", ctypes.POINTER(ctypes.c_void_p)),
    ("children", ctypes.POINTER(ctypes.POINTER(_ArrowArray))),
    ("dictionary", ctypes.c_void_p),
    ("release", ctypes.c_void_p),
    ("private_data", ctypes.c_void_p),
]


class _SharedPixels:
    """Memory of Pillow's as NumPy's array interface; it is released when the last array that uses it is gone."""

    def __init__(self, capsule: object, address: int, shape: tuple[int, ...]) -> None:
        self._capsule = capsule  # releases the memory when it is deleted
        self.__array_interface__ = {"shape": shape, "typestr": "|u1", "data": (address, True), "version": 3}


def pixels_of(image: Image) -> NDArray[np.uint8]:
    """Return the pixels of ``image``, (H, W) or (H, W, C), read-only, as ``numpy.asarray`` does.

    ``numpy.asarray`` copies them twice. Pillow 11.2 and later share the memory of an image by Arrow's interface. For
    red, green and blue each pixel has 4 bytes, of which the array shows 3.
    """
    shared = _shared(image) if image.mode == "RGB" else None
    if shared is None:
        return np.asarray(image)
    pixels: NDArray[np.uint8] = np.asarray(shared)[..., :3]
    return pixels


def _shared(image: Image) -> _SharedPixels | None:
    """Return the pixels (H, W, 4) of a loaded RGB image; ``None`` if Pillow cannot share them."""
    from PIL import _imaging  # noqa: PLC0415  optional package

    image.load()
    core: Any = image.im
    if not hasattr(core, "__arrow_c_array__") or not hasattr(ctypes, "pythonapi"):
        return None
    if _imaging.get_alignment() != 1:  # PILLOW_ALIGNMENT puts gaps between rows
        return None
    try:
        capsule = core.__arrow_c_array__()
    except ValueError:  # an image of several blocks of memory
        return None
    pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
    pointer_of.restype, pointer_of.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    array = _ArrowArray.from_address(pointer_of(capsule, b"arrow_array"))
    count = image.width * image.height
    if array.length != count or array.n_children != 1 or array.offset:
        return None
    values = array.children[0].contents
    if values.length != _STORED * count or values.n_buffers != 2 or values.offset:
        return None
    return _SharedPixels(capsule, values.buffers[1], (image.height, image.width, _STORED))
