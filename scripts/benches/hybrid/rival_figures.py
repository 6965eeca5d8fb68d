"""The figure of ``scripts/bench hybrid --rivals``: training times as in the paper's Fig. 6, and what they bring."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from scripts.benches.harness.panels import new_panels, save_panels
from scripts.benches.hybrid.rival_results import Trained

# Distinct for readers with any kind of colour vision, and in grey (Okabe and Ito).
COLOURS = {
    "ONE": "#000000", "DP": "#E69F00", "DDP": "#56B4E9", "ASGD": "#999999", "DDG": "#009E73", "FDG": "#0072B2",
    "HYBRID": "#D55E00", "HYBRID_ASGD": "#CC79A7",
}  # fmt: skip
MARKS = {"ONE": "s", "DP": "v", "DDP": "^", "ASGD": "x", "DDG": "D", "FDG": "o", "HYBRID": "*", "HYBRID_ASGD": "P"}


def draw(path: Path, found: Sequence[Trained]) -> None:
    """Training time against ranks; loss and accuracy against time, of the most ranks."""
    figure, (times, losses, accuracies) = new_panels("3D-ResAttNet-18, small", 3)
    for name, colour in COLOURS.items():
        own = sorted((each for each in found if each.rival.name == name), key=lambda each: each.rival.ranks)
        if not own:
            continue
        style: dict[str, Any] = {"color": colour, "marker": MARKS[name], "markersize": 4, "label": name}
        times.plot([each.rival.ranks for each in own], [each.seconds for each in own], **style)
        last = own[-1]
        seconds = [point[1] for point in last.points]
        losses.plot(seconds, [point[2] for point in last.points], **style)
        accuracies.plot(seconds, [100 * point[3] for point in last.points], **style)
    times.set_xticks(sorted({each.rival.ranks for each in found}))
    times.set_ylim(bottom=0)
    for axes, across, up in (
        (times, "ranks", "training time (s)"), (losses, "time (s)", "loss"), (accuracies, "time (s)", "accuracy (%)"),
    ):  # fmt: skip
        axes.set_xlabel(across)
        axes.set_ylabel(up)
    save_panels(figure, [times, losses, accuracies], path)
