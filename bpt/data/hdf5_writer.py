"""Hdf5Writer: appends rows to the datasets of an HDF5 file."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bpt.data.hdf5_source import import_h5py
from bpt.errors import WriteError

Rows = NDArray[np.floating]


class Hdf5Writer:
    """Writes a new file at ``path`` with the first rows, in place of one that is there, and appends the others.

    Between two calls the file is closed, and complete.

    Args:
        path: in a folder that exists.

    Raises:
        WriteError: there is no such folder, or ``path`` is a folder.
        UserError: the package h5py is missing.
    """

    def __init__(self, path: str) -> None:
        self._h5py = import_h5py()
        self.path = path
        self._begun = False
        if not Path(path).absolute().parent.is_dir():
            raise WriteError(path, f'there is no folder "{Path(path).parent}"')
        if os.path.isdir(path):
            raise WriteError(path, "is a folder")

    def append(self, rows: Mapping[str, Rows]) -> None:
        """Append to each dataset its ``rows`` (N, …), as many for each; behind N all calls have the same shapes.

        Raises:
            WriteError: the file cannot be written. The first rows leave what stood there before intact.
        """
        try:
            if self._begun:
                self._extend(rows)
            else:
                self._create(rows)
                self._begun = True
        except OSError as error:
            raise WriteError(self.path, error.strerror or error) from None

    def _create(self, rows: Mapping[str, Rows]) -> None:
        part = f"{self.path}.{os.getpid()}.part"
        try:
            with self._h5py.File(part, "w", locking=False) as file:
                for name, values in rows.items():
                    # Without rows there is no chunk whose size could be guessed from them.
                    file.create_dataset(name, data=values, maxshape=(None, *values.shape[1:]), chunks=_chunks(values))
            os.replace(part, self.path)
        finally:
            Path(part).unlink(missing_ok=True)

    def _extend(self, rows: Mapping[str, Rows]) -> None:
        with self._h5py.File(self.path, "r+", locking=False) as file:
            for name, values in rows.items():
                dataset = file[name]
                there = len(dataset)
                dataset.resize(there + len(values), axis=0)
                dataset[there:] = values


def _chunks(values: Rows) -> tuple[int, ...]:
    """A chunk has the rows of a call, so that none is read again to append the next."""
    return tuple(max(1, size) for size in values.shape)
