"""What ``bpt plot`` and ``tools/plot_training_log.py`` do: the figure of training logs."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from bpt.errors import UsageError
from bpt.plot.log_figure import CHARTS, check_figure, draw
from bpt.plot.training_log import read_log


def plot_logs(output: str, logs: Sequence[str], chart: int | None = None, seconds: bool = False) -> Path:
    """Write the figure of the files ``logs``; see ``bpt.plot.log_figure.draw``.

    Raises:
        UserError: there is no matplotlib, or nothing to show.
        UsageError: figures are not written to files of that kind; there is no such chart; no log is named.
        FileError: a log cannot be read, or is none.
        WriteError: the figure could not be written.
    """
    if chart is not None and not 0 <= chart < len(CHARTS):
        kinds = "; ".join(f"{number}: {words}" for number, words in enumerate(CHARTS))
        raise UsageError(f"there is no chart type {chart} ({kinds})")
    if not logs:
        raise UsageError("name at least one log")
    check_figure(output)
    read = [read_log(path) for path in logs]
    if len({log.name for log in read}) < len(read):  # logs of one name in different folders
        read = [replace(log, name=os.path.normpath(path)) for log, path in zip(read, logs, strict=True)]
    return draw(read, output, chart, seconds)
