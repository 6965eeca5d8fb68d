"""Bars side by side, for ways to train that are compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import TYPE_CHECKING

from bpt.report.outer.style import COLOURS, HATCHES, SMALL, shown

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NUMBERED = 24  # bars of a figure that get a number each
NEVER = "–"  # over the place of a bar that is missing, as in the paper's Table 1


def bars(axes: Axes, values: Mapping[str, Sequence[float]]) -> None:
    """A bar for each name: the mean of its values, and whiskers from the least to the greatest."""
    for number, (name, each) in enumerate(values.items()):
        _bar(axes, number, 0.65, each, number, name)
    axes.set_xticks(range(len(values)), list(values))
    axes.set_xlim(-0.6, len(values) - 0.4)
    _room_above(axes)


def grouped_bars(axes: Axes, groups: Sequence[str], values: Mapping[str, Sequence[Sequence[float | None]]]) -> None:
    """For each group a bar of each name, ``values[name][group]`` being the runs: ``None`` if it never came to that.

    There is a bar if there is a value of every run.
    """
    width = 0.8 / max(len(values), 1)
    points = SMALL - 1 if len(groups) * len(values) <= NUMBERED / 2 else SMALL - 2
    if len(groups) * len(values) > NUMBERED:
        points = 0
    for number, (name, of_groups) in enumerate(values.items()):
        for group, each in enumerate(of_groups):
            place = group + (number - (len(values) - 1) / 2) * width
            known = [value for value in each if value is not None]
            if known and len(known) == len(each):
                _bar(axes, place, width * 0.9, known, number, name if not group else "", points)
            else:
                axes.annotate(NEVER, (place, 0), ha="center", va="bottom")
                if not group:
                    axes.bar([place], [0], color=COLOURS[number % len(COLOURS)], label=name)
    axes.set_xticks(range(len(groups)), list(groups))
    axes.set_xlim(-0.6, len(groups) - 0.4)
    _room_above(axes)


def _bar(
    axes: Axes, place: float, width: float, values: Sequence[float], number: int, label: str, points: int = SMALL - 1
) -> None:
    """``points``: the size of the number above; 0: none."""
    mean = fmean(values)
    axes.bar(
        [place], [mean], width, color=COLOURS[number % len(COLOURS)], hatch=HATCHES[number % len(HATCHES)],
        edgecolor="white", linewidth=0.5, label=label,
    )  # fmt: skip
    if len(values) > 1:
        axes.errorbar(
            [place], [mean], [[mean - min(values)], [max(values) - mean]], color="black", capsize=2.5, linewidth=1
        )
    if not points:
        return
    axes.annotate(
        shown(mean), (place, max(values)), xytext=(0, 2), textcoords="offset points", ha="center", va="bottom",
        fontsize=points,
    )  # fmt: skip


def _room_above(axes: Axes) -> None:
    """For the numbers over the bars."""
    axes.set_ylim(0, axes.get_ylim()[1] * 1.06)
