"""Writes HDF5 files and the layers that read them."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np


def text(source: object, more: str = "batch_size: 3", outer: str = "") -> str:
    return (
        f'layer {{ name: "d" type: "HDF5Data" top: "data" top: "label" {outer}'
        f' hdf5_data_param {{ source: "{source}" {more} }} }}'
    )


def write(folder: Path, *files: dict[str, np.ndarray]) -> Path:
    """HDF5 files of these datasets, and the list of them."""
    names = [f"{index}.h5" for index in range(len(files))]
    for name, datasets in zip(names, files, strict=True):
        with h5py.File(folder / name, "w") as file:
            for key, values in datasets.items():
                file[key] = values
    (folder / "list.txt").write_text("\n".join(names) + "\n\n")
    return folder / "list.txt"


def numbered(first: int, rows: int) -> dict[str, np.ndarray]:
    """Rows whose data and label are the row's number, as double and as integer."""
    number = np.arange(first, first + rows)
    return {"data": np.stack([number, -number], axis=1).astype(np.float64), "label": number}
