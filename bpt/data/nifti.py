"""Reads volumes, such as brain scans, from NIfTI files (``.nii``, ``.nii.gz``)."""

from __future__ import annotations

import math
import os
import zlib
from pathlib import Path
from types import ModuleType
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from bpt.base.errors import FileError, UserError, did_you_mean, first_line_of
from bpt.base.native_paths import native_path, windows_hint
from bpt.base.user_files import refuse_file
from bpt.graph.layer_spec import shape_text
from bpt.system.device import CPU
from bpt.system.device.memory_use import obtainable_memory

Volume: TypeAlias = NDArray[np.float32]
"""A volume (D, H, W)."""


def import_nibabel() -> ModuleType:
    """Return the module ``nibabel``; raise a UserError that says how to install it if it is missing."""
    try:
        import nibabel  # noqa: PLC0415  optional package
    except ImportError:
        raise UserError("NIfTI volumes need the package nibabel: pip install 'bpt[volume]'") from None
    return nibabel


def open_nifti(path: str | os.PathLike[str]) -> Any:
    """Return the NIfTI image in the file at ``path`` as nibabel's object.

    This checks its header, and does not read its voxels.

    Raises:
        FileError: the file is missing, is not NIfTI, is not one volume of numbers, or has a singular affine.
        UserError: the package nibabel is missing.
    """
    nibabel = import_nibabel()
    path = native_path(os.fspath(path))
    if not Path(path).is_file():
        raise FileError(path, _missing(Path(path)))
    try:
        image = nibabel.load(path, mmap=False)  # a memory map of a truncated file would kill the process
    except (nibabel.filebasedimages.ImageFileError, nibabel.spatialimages.HeaderDataError) as error:
        wanted = "a gzip file" if path.endswith(".gz") else "a NIfTI file"
        raise refuse_file(path, wanted, f"is not a NIfTI file, or a damaged one: {first_line_of(error)}") from None
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise FileError(path, _why(error, "is not a NIfTI file, or a damaged one")) from None
    if not isinstance(image, nibabel.Nifti1Pair):  # the class of NIfTI-2 is a subclass
        raise FileError(path, f"is a file of nibabel's {type(image).__name__}, not NIfTI")
    _check_shape(path, image.shape)
    if image.get_data_dtype().kind not in "fiub":
        raise FileError(path, f"holds voxels of type {image.get_data_dtype()}, not numbers")
    _check_size(path, math.prod(image.shape) * image.get_data_dtype().itemsize)
    affine = image.affine
    if not np.isfinite(affine).all() or np.isnan(nibabel.orientations.io_orientation(affine)).any():
        raise FileError(path, "has an affine that does not map voxels to places of space")
    return image


def read_nifti(path: str | os.PathLike[str]) -> Volume:
    """Return the voxels of the file at ``path``, with the file's scale applied: (D, H, W).

    The axes are flipped and permuted, never resampled, to the closest canonical ones: the first goes from left to
    right, the second from back to front, the third from bottom to top (RAS+; nibabel: ``as_closest_canonical``). A file
    without an orientation has NIfTI's default, whose first axis goes from right to left.

    Raises:
        FileError: as in ``open_nifti``; or the voxels cannot be read, or some are not finite numbers.
        UserError: the package nibabel is missing.
    """
    image = open_nifti(path)
    orientations = import_nibabel().orientations
    try:
        with np.errstate(over="ignore", invalid="ignore"):  # numbers beyond float32 raise an error below
            voxels = image.get_fdata(dtype=np.float32, caching="unchanged")
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise FileError(path, _why(error, "is a damaged NIfTI file")) from None
    bad = voxels.size - np.count_nonzero(np.isfinite(voxels))
    if bad:
        raise FileError(path, f"has {bad} of {voxels.size} voxels that are no finite float32 (NaN or infinite)")
    oriented = orientations.apply_orientation(
        voxels.reshape(voxels.shape[:3]), orientations.io_orientation(image.affine)
    )
    return np.ascontiguousarray(oriented, np.float32)


def _check_shape(path: object, shape: tuple[int, ...]) -> None:
    """Raise a FileError unless ``shape`` is that of one volume: three axes, and further ones only of length 1."""
    text = shape_text(shape)
    if len(shape) < 3:
        raise FileError(path, f"is an image of {text}, not a volume with three axes")
    if max(shape[3:], default=1) > 1:
        raise FileError(path, f"holds several volumes, {text}; only one can be read, so write one by itself")
    if not min(shape):
        raise FileError(path, f"has no voxels: {text}")


def _check_size(path: object, size: int) -> None:
    """Raise a FileError if the header announces more voxels than fit into memory, which nibabel allocates at once."""
    memory = obtainable_memory(CPU)
    if size > memory:
        announced, free = size / 2**30, memory / 2**30
        raise FileError(path, f"announces voxels of {announced:.3g} GiB, but there are {free:.1f} GiB of memory")


def _missing(path: Path) -> str:
    if hint := windows_hint(str(path)):
        return f"no such file{hint}"
    if path.exists():
        return "is not a file"
    try:
        return f"no such file{did_you_mean(path.name, sorted(os.listdir(path.parent)), folder=os.path.dirname(path))}"
    except OSError:
        return f'no such file: there is no folder "{path.parent}"'


def _why(error: Exception, otherwise: str) -> str:
    """Return the system's reason why the file cannot be read, or else ``otherwise`` with the package's message."""
    if isinstance(error, OSError) and error.errno:
        return f"cannot be read: {error.strerror}"
    return f"{otherwise}: {first_line_of(error)}"
