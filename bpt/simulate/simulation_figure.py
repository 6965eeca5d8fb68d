"""The figure of ``bpt simulate``: what each node does with its time."""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING

from bpt.report.outer.style import BLUE, GREY, ORANGE, check_picture, new_figure, save
from bpt.schedule.outer.simulation.outcome import NodeOutcome, Outcome
from bpt.simulate.simulation import Simulated

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PARTS = {"computing": BLUE, "waiting for the server": ORANGE, "idle at the end": GREY}
HEIGHT = 1.6  # inches of a strategy
BARS = 60  # nodes that are told apart
FORMATS = (".png", ".svg")


def check_figure(path: str) -> None:
    """Raise a UserError if no such figure can be written to ``path``; better before the work than after it."""
    check_picture(path, FORMATS, f"--png {path}: writes files that end in {' or '.join(FORMATS)}")


def draw(path: str, simulated: Simulated) -> None:
    """Write a panel for each strategy: the nodes, from slow to fast, and what they did when.

    PNG or SVG, as the end of ``path`` says.

    Raises:
        UserError: there is no matplotlib.
        WriteError: the file could not be written.
    """
    outcomes = simulated.outcomes
    figure, panels = new_figure(simulated.facts.name, len(outcomes), height=1.0 + HEIGHT * len(outcomes))
    most = max(outcome.seconds for outcome in outcomes.values())
    for axes, (name, outcome) in zip(panels, outcomes.items(), strict=True):
        _panel(axes, outcome)
        axes.set_title(f"{name}: {outcome.seconds:.4g} s, balance index {outcome.balance:.3f}")
        axes.set_ylim(0, most * 1.02)
        axes.set_ylabel("time (s)")
    panels[-1].set_xlabel("computing nodes, from slow to fast")
    from matplotlib.patches import Patch  # noqa: PLC0415  an extra, and slow to import

    handles = [Patch(color=colour, label=label) for label, colour in PARTS.items()]  # the panels have one legend
    figure.legend(handles=handles, loc="outside lower center", ncols=len(PARTS), fontsize=8, frameon=False)
    save(figure, path)


def _panel(axes: Axes, outcome: Outcome) -> None:
    nodes = sorted(outcome.nodes, key=lambda node: node.speed)
    heights = list(zip(*(accumulate(_parts(node)) for node in nodes), strict=True))
    below = (0.0,) * len(nodes)
    for colour, above in zip(PARTS.values(), heights, strict=True):
        if len(nodes) <= BARS:
            seconds = [high - low for high, low in zip(above, below, strict=True)]
            axes.bar(range(len(nodes)), seconds, 0.9, below, color=colour, linewidth=0)
        else:
            axes.fill_between(range(len(nodes)), below, above, step="mid", color=colour, linewidth=0)
        below = above
    axes.set_xlim(-0.5, len(nodes) - 0.5)
    axes.set_xticks([])


def _parts(node: NodeOutcome) -> tuple[float, float, float]:
    return node.computing, node.waiting, node.idle
