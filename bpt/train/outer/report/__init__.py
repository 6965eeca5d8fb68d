"""The reports of BPT-CNN's outer layer: rows of measurements, log lines, CSV files, figures.

``record.py`` holds the measurements, and ``tables.py`` writes and reads them as CSV and sums them up. ``figures.py``
draws one run and ``run_comparison.py`` several, in the style of ``style.py``; matplotlib is imported only to draw.
"""

from bpt.train.outer.report.figures import draw
from bpt.train.outer.report.record import AllocationRow, MigrationRow, NodeRow, RunRecord, ServerRow, TestRow, UpdateRow
from bpt.train.outer.report.run_comparison import compare, draw_lines
from bpt.train.outer.report.style import check_matplotlib
from bpt.train.outer.report.tables import Quantity, quantities, read_csv, summary_lines, write_csv

__all__ = [
    "AllocationRow",
    "MigrationRow",
    "NodeRow",
    "Quantity",
    "RunRecord",
    "ServerRow",
    "TestRow",
    "UpdateRow",
    "check_matplotlib",
    "compare",
    "draw",
    "draw_lines",
    "quantities",
    "read_csv",
    "summary_lines",
    "write_csv",
]
