"""What the benches of ``scripts/bench papers`` have left: their CSV files, by bench; and values found in them."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

MEASURED, FORECAST, COUNTED, GIVEN = "measured", "forecast", "counted", "given"


@dataclass(frozen=True)
class Value:
    """A quantity of a paper, as bpt has it here.

    Attributes:
        number: the value, in the paper's unit.
        kind: MEASURED on this machine, FORECAST for the paper's machine, COUNTED, which no machine changes, or GIVEN,
            which is the paper's own number, or true by definition.
        remark: on what it was found, and why it may differ from the paper's.
    """

    number: float
    kind: str
    remark: str = ""


Row = Mapping[str, str]


class Results:
    """The CSV files below the folder of a run.

    Args:
        folder: of ``scripts/bench papers``; each command has a folder in it, named after the command's number.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.rows = cache(self._rows)

    def _rows(self, bench: str, table: str) -> list[Row]:
        """Return the rows of a table of a bench, over all its commands; none if the bench has not run."""
        return [row for path in self._paths(bench, f"{table}.csv") for row in read(path)]

    def _paths(self, bench: str, name: str) -> Iterator[Path]:
        for place in sorted(self._folder.glob(f"[0-9]*_{bench}*")):
            yield from sorted(place.rglob(name))

    def runs(self, way: str, table: str) -> list[list[Row]]:
        """Return a table of each run of ``scripts/bench bptcnn`` by one way to train."""
        return [read(path) for path in self._paths("bptcnn", f"{table}.csv") if path.parent.parent.name[:-2] == way]


def read(path: Path) -> list[Row]:
    """Return the rows of a CSV file, by the names of its columns."""
    with path.open(newline="") as file:
        return list(csv.DictReader(file))
