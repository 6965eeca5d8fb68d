"""What benches leave: CSV files."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from pathlib import Path


def write_rows(path: Path, head: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """A CSV file."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(head)
        writer.writerows(rows)


def append_rows(path: Path, head: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """More rows of a CSV file, which is made if there is none."""
    begins = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.writer(file)
        if begins:
            writer.writerow(head)
        writer.writerows(rows)


class Tables:
    """CSV files in a folder, which grow from net to net: what there is stays, should somebody stop the rest."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._rows: dict[str, list[Sequence[object]]] = {}

    def add(self, name: str, head: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
        """More rows of the file ``name``, whose columns ``head`` names; numbers with all their digits."""
        known = self._rows.setdefault(name, [])
        known.extend(rows)
        write_rows(self._folder / f"{name}.csv", head, known)
