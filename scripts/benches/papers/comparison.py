"""The papers' numbers beside bpt's: ``comparison.csv``, a page of tables, and the same tables in docs/reproduce.md.

The papers' values are in ``values/``, one CSV file a paper, with the table or figure that each is from. What bpt gets
is measured here by the benches that ``scripts/bench papers`` runs. What needs the papers' machines is forecast.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from scripts.benches.harness.launch import ROOT
from scripts.benches.harness.tables import write_rows
from scripts.benches.papers.forecasts import VALUES
from scripts.benches.papers.found import Results, Value
from scripts.benches.papers.sources import SOURCES

PAPERS = {"cgdp": "CGDP", "staticlb": "StaticLB", "hybrid": "Hybrid", "mpifc": "MPI-FC", "bptcnn": "BPT-CNN"}
HEAD = ("paper", "item", "quantity", "unit", "paper's value", "value here", "ratio", "kind", "remark")
PAGE = ROOT / "docs" / "reproduce.md"
BEGIN, END = "<!-- comparison: begin -->", "<!-- comparison: end -->"
MISSING = "its bench has left no result"
NOTES = {
    "Hybrid": "Accuracies are those of one small 3D-ResAttNet-18 on generated brains, for all tasks and depths: ADNI's "
    "scans need an application. Forecasts count computing, messages and the update; what else the paper's program "
    "spends is not known.",
    "BPT-CNN": "The paper does not describe its 30 nodes. What is simulated has 30 nodes of our own description.",
}
"""What holds for many rows of a paper, in the words of a paragraph above its table."""


@dataclass(frozen=True)
class Quantity:
    """A row of a paper's value file.

    Attributes:
        item: the table, figure or section that prints it.
        unit: of the value; empty: a plain number.
        printed: the paper's value.
        source: the function of ``sources.py`` that finds bpt's value, and its words.
        remark: on the paper's value.
    """

    paper: str
    item: str
    quantity: str
    unit: str
    printed: float
    source: str
    remark: str = ""

    def here(self, results: Results) -> Value | None:
        """Return bpt's value; ``None`` if its bench has left no result."""
        name, *words = self.source.split(" ")
        return SOURCES[name](results, *words)

    def row(self, results: Results) -> tuple[object, ...]:
        """Return the row of the comparison, in the columns of HEAD."""
        facts = self.paper, self.item, self.quantity, self.unit, self.printed
        found = self.here(results)
        if found is None:
            return *facts, "", "", "", MISSING
        ratio = found.number / self.printed if self.printed else ""
        return *facts, found.number, ratio, found.kind, "; ".join(filter(None, (found.remark, self.remark)))


def quantities() -> Iterator[Quantity]:
    """Yield all quantities of all papers."""
    for name, paper in PAPERS.items():
        with (VALUES / f"{name}.csv").open(newline="") as file:
            for row in csv.DictReader(file):
                yield Quantity(
                    paper, row["item"], row["quantity"], row["unit"], float(row["value"]), row["source"], row["remark"]
                )


def compare(folder: Path, papers: Sequence[str] = ()) -> list[tuple[object, ...]]:
    """Write ``comparison.csv`` and ``comparison.md`` of the results in a folder.

    Args:
        papers: those whose names begin so; by default all.

    Returns:
        The rows, in the columns of HEAD.
    """
    results = Results(folder)
    rows = [each.row(results) for each in quantities() if each.paper.startswith(tuple(papers) or ("",))]
    write_rows(folder / "comparison.csv", HEAD, rows)
    (folder / "comparison.md").write_text("# The papers' numbers beside bpt's\n\n" + "\n".join(page(rows)) + "\n")
    return rows


def page(rows: Sequence[Sequence[object]]) -> Iterator[str]:
    """Yield the lines of a Markdown table a paper."""
    for paper in dict.fromkeys(row[0] for row in rows):
        yield f"### {paper}"
        yield ""
        if paper in NOTES:
            yield NOTES[paper]
            yield ""
        yield "| item | quantity | paper | here | ratio | kind | remark |"
        yield "| --- | --- | --- | --- | --- | --- | --- |"
        for _, item, quantity, unit, printed, here, ratio, kind, remark in (row for row in rows if row[0] == paper):
            words = f" {unit}" if unit and unit != "x" else ""
            cells = (item, quantity, f"{number(printed)}{words}", number(here), number(ratio), kind, remark)
            yield f"| {' | '.join(map(str, cells))} |"
        yield ""


def number(value: object) -> str:
    """Return a number with four digits at most, without an exponent where it is not tiny."""
    if not isinstance(value, float):
        return str(value)
    if math.isinf(value):
        return "never"
    if value == 0 or abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.4g}" if abs(value) >= 0.01 else f"{value:.2g}"


def write_page(rows: Sequence[Sequence[object]], path: Path = PAGE) -> None:
    """Replace what is between the markers of docs/reproduce.md by the tables."""
    before, _, rest = path.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    path.write_text(f"{before}{BEGIN}\n\n" + "\n".join(page(rows)) + f"\n{END}{after}")
