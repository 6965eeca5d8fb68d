"""The picture of a forecast: the work of each rank in an iteration."""

from __future__ import annotations

from pathlib import Path

from bpt.parallel.pipeline.simulation.trace import COMPUTE
from bpt.perf.forecast.forecast import Forecast
from bpt.perf.planner.plan_report import milliseconds
from bpt.train.outer.report.style import BLUE, COLOURS, GREY, new_figure, save

SHOWN = 32  # ranks
SHADES = {"F": 0.45, "B": 0.95, "U": 1.0, "X": 0.8, "C": 0.8}


def draw_timeline(forecast: Forecast, title: str, path: str) -> Path:
    """Write the work of the first ranks as PNG or SVG: forward light, backward full, exchange below.

    Raises:
        UserError: there is no matplotlib.
        WriteError: the file could not be written.
    """
    ranks = min(len(forecast.computing), SHOWN)
    figure, [axes] = new_figure(title, height=1.6 + 0.3 * ranks)
    for bar in (bar for bar in forecast.bars if bar.rank < ranks and bar.end > bar.start):
        computes = bar.stream == COMPUTE
        row, height = (bar.rank - 0.12, 0.5) if computes else (bar.rank + 0.28, 0.22)
        colour = (BLUE if bar.label[0] != "U" else GREY) if computes else COLOURS[1]
        axes.barh(
            row, (bar.end - bar.start) * 1e3, height, bar.start * 1e3, color=colour, alpha=SHADES[bar.label[0]],
            edgecolor="white", linewidth=0.4,
        )  # fmt: skip
    axes.set_yticks(range(ranks), [f"rank {rank}" for rank in range(ranks)])
    axes.set_ylim(ranks - 0.45, -0.55)
    axes.set_xlim(0, forecast.seconds * 1e3)
    axes.set_xlabel("time (ms); forward light, backward full, below the exchange")
    axes.set_title(f"iteration {milliseconds(forecast.seconds)} ms, bubble {forecast.bubble:.1%}")
    return save(figure, path)
