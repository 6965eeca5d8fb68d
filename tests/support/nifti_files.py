"""Writes small NIfTI files."""

from __future__ import annotations

from pathlib import Path

import nibabel
import numpy as np

VOXELS = np.arange(24, dtype=np.float32).reshape(2, 3, 4) ** 2


def write(path: Path, voxels: np.ndarray = VOXELS, affine: np.ndarray | None = None) -> Path:
    nibabel.save(nibabel.Nifti1Image(voxels, np.eye(4) if affine is None else affine), path)
    return path
