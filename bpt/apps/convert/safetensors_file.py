"""Read and write weights in safetensors: one tensor for each blob, called ``<layer>/<number of the blob>``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

import numpy as np

from bpt.base.atomic import atomic_path
from bpt.base.errors import FileError
from bpt.base.formats import SAFETENSORS
from bpt.base.user_files import file_errors, read_bytes, refuse_file
from bpt.config.proto.blobs import FloatArray


def read_arrays(path: str) -> dict[str, tuple[FloatArray, ...]]:
    """Return the blobs of each layer at ``path``, in single precision.

    Raises:
        FileError: the file cannot be read, or its tensors have other names than :func:`write_arrays` gives them.
    """
    library = _library(path)
    with file_errors(path):
        content = read_bytes(path)
    try:
        tensors = library.load(content)
    except Exception as error:  # the package's own error, or numpy's for a type that numpy does not have
        raise refuse_file(path, SAFETENSORS.what, f"is not safetensors that can be read: {error}") from None
    found: dict[str, dict[int, FloatArray]] = {}
    for key, values in tensors.items():
        layer, slash, number = key.rpartition("/")
        if not slash or not number.isdecimal() or values.dtype.kind not in "fiub":
            raise FileError(path, f'has "{key}", {values.dtype}; a tensor must be called <layer>/<number of the blob>')
        found.setdefault(layer, {})[int(number)] = values.astype(np.float32)
    for layer, blobs in found.items():
        if sorted(blobs) != list(range(len(blobs))):
            raise FileError(path, f'layer "{layer}" has blobs {sorted(blobs)}; they must be numbered from 0')
    return {layer: tuple(blobs[number] for number in sorted(blobs)) for layer, blobs in found.items()}


def write_arrays(layers: Mapping[str, Sequence[FloatArray]], path: str, halves: Mapping[str, Sequence[bool]]) -> None:
    """Write the blobs of each layer; those that ``halves`` marks are stored in half precision.

    Raises:
        WriteError: the file could not be written.
    """
    library = _library(path)
    tensors = {}
    for layer, blobs in layers.items():
        for number, (values, half) in enumerate(zip(blobs, halves.get(layer, [False] * len(blobs)), strict=True)):
            kind = np.float16 if half else np.float32
            stored = np.ascontiguousarray(values, kind).reshape(values.shape)
            tensors[f"{layer}/{number}"] = stored
    with atomic_path(path) as temporary, open(temporary, "wb") as file:
        file.write(library.save(tensors))


def _library(path: str) -> Any:
    try:
        return import_module("safetensors.numpy")  # an extra
    except ImportError:
        raise FileError(path, 'needs the package safetensors: pip install "bpt[safetensors]"') from None
