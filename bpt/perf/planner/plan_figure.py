"""The figures of ``bpt plan``: layers by stage, the work of each device in an iteration, GABRA's convergence.

With ``--dry-run`` the figure shows the work of each rank.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from bpt.parallel.pipeline.simulation.trace import COMPUTE
from bpt.perf.forecast.forecast import Forecast, ForecastBar
from bpt.perf.planner.plan_report import PlacementForecast, PlacementPlan, milliseconds
from bpt.train.outer.report.style import BLUE, COLOURS, GREY, SMALL, new_figure, save, whole_ticks

if TYPE_CHECKING:
    from matplotlib.axes import Axes

INCHES = 0.34  # height of a stage in the timeline
NAMED = 32  # layers up to which all names are shown; with more layers, only the first name of each run on a stage
LONGEST = 20  # letters of the longest name
LABELLED = 160  # forward and backward passes up to which numbers are shown
UPDATE = "#666666"
RANKS = 32  # ranks that a forecast's figure shows
SHADES = {"F": 0.45, "B": 0.95, "I": 0.95, "V": 0.7, "U": 1.0}  # opacity by the letter of an instruction
LEGEND = "light: forward, full: backward, grey: update, gaps: idle"
EXCHANGED = 0.8  # opacity of exchanges


class FigureBar(NamedTuple):
    """A forward pass, a backward pass or an update of a stage, over consecutive segments.

    ``kind`` is the letter of its instructions: ``F``, ``B``, or ``I`` and ``V`` for the two parts of one, ``U``.
    """

    stage: int
    kind: str
    micro: str
    start: float
    end: float


def draw(plan: PlacementPlan, path: str) -> Path:
    """Write the figure of ``plan`` as PNG or SVG, by the suffix of ``path``.

    Raises:
        UserError: matplotlib is missing.
        WriteError: the file could not be written.
    """
    depth = len(plan.problem.devices)
    rows = -(-depth // 2)  # rows of the legend
    heights = [2.9, 0.9 + INCHES * depth] + ([1.7] if plan.convergence else [])
    figure, [empty] = new_figure(plan.title, height=0.4 + 0.18 * rows + sum(heights))
    empty.remove()
    panels = figure.subplots(len(heights), height_ratios=heights, squeeze=False).flat
    draw_layers(panels[0], plan)
    draw_timeline(panels[1], plan)
    if plan.convergence:
        draw_convergence(panels[2], plan)
    return save(figure, path)


def draw_layers(axes: Axes, plan: PlacementPlan) -> None:
    """Draw a bar for each layer in its stage's colour, with the milliseconds of a batch on this stage."""
    from matplotlib.patches import Patch  # noqa: PLC0415  an extra, and slow to import

    chosen, devices = plan.chosen, plan.problem.devices
    for segment, stage in zip(chosen.segments, chosen.stages, strict=True):
        layers = range(segment.start, segment.end)
        heights = [plan.problem.costs[layer].work / devices[stage].speed * 1e3 for layer in layers]
        axes.bar(layers, heights, 0.85, color=colour(stage), linewidth=0)
        axes.axvspan(segment.start - 0.5, segment.end - 0.5, color=colour(stage), alpha=0.12, linewidth=0)
    count = len(plan.graph)
    named = list(range(count)) if count <= NAMED else _spaced([segment.start for segment in chosen.segments], count)
    names = [_short(plan.graph.nodes[layer].name) for layer in named]
    axes.set_xticks(named, names, rotation=90, parse_math=False)
    axes.set_xlim(-0.5, count - 0.5)
    axes.set_ylabel("ms a batch")
    handles = [
        Patch(color=colour(stage), label=f"{stage}: {device.name}, load {chosen.loads[stage]:.0%}")
        for stage, device in enumerate(devices)
    ]
    columns = min(len(handles), 3 if max(len(device.name) for device in devices) < 8 else 2)
    axes.legend(handles=handles, loc="lower left", bbox_to_anchor=(0, 1), ncols=columns, fontsize=SMALL, frameon=False)


def draw_timeline(axes: Axes, plan: PlacementPlan) -> None:
    """Draw a row for each stage: light forward passes, dark backward passes, and the numbers of micro-batches."""
    passes = list(bars(plan))
    for bar in passes:
        span = bar.end - bar.start
        _draw_bar(axes, bar, bar.stage, 0.8, UPDATE if bar.kind == "U" else colour(bar.stage), bar.kind)
        if bar.micro and len(passes) <= LABELLED and span > 0.012 * plan.chosen.trace.time:
            middle = (bar.start + bar.end) / 2 * 1e3
            text = "black" if bar.kind == "F" else "white"
            axes.text(middle, bar.stage, bar.micro, ha="center", va="center", fontsize=6, color=text)
    names = [device.name for device in plan.problem.devices]
    _label_timeline(axes, names, plan.chosen, plan.chosen.trace.time, LEGEND)
    axes.set_facecolor("#F4F4F4")


def draw_forecast(forecast: Forecast, title: str, path: str) -> Path:
    """Write the work of the first ranks as PNG or SVG: light forward, dark backward, and the exchange below.

    Raises:
        UserError: matplotlib is missing.
        WriteError: the file could not be written.
    """
    ranks = min(len(forecast.computing), RANKS)
    figure, [axes] = new_figure(title, height=1.6 + 0.3 * ranks)
    for bar in (bar for bar in forecast.bars if bar.rank < ranks and bar.end > bar.start):
        letter = bar.label[0]
        if bar.stream == COMPUTE:
            _draw_bar(axes, bar, bar.rank - 0.12, 0.5, BLUE if letter != "U" else GREY, letter)
        else:
            _draw_bar(axes, bar, bar.rank + 0.28, 0.22, COLOURS[1], letter)
    names = [f"rank {rank}" for rank in range(ranks)]
    _label_timeline(axes, names, forecast, forecast.seconds, f"{LEGEND}; below: exchange")
    return save(figure, path)


def _draw_bar(axes: Axes, bar: FigureBar | ForecastBar, row: float, height: float, colour: str, letter: str) -> None:
    width, start = (bar.end - bar.start) * 1e3, bar.start * 1e3
    axes.barh(
        row, width, height, start, color=colour, alpha=SHADES.get(letter, EXCHANGED), edgecolor="white", linewidth=0.5
    )


def _label_timeline(
    axes: Axes, names: Sequence[str], forecast: Forecast | PlacementForecast, seconds: float, legend: str
) -> None:
    axes.set_yticks(range(len(names)), names, parse_math=False)
    axes.set_ylim(len(names) - 0.45, -0.55)
    axes.set_xlim(0, max(seconds, 1e-12) * 1e3)
    axes.set_xlabel(f"time (ms); {legend}")
    axes.set_title(f"iteration {milliseconds(forecast.seconds)} ms, bubble {forecast.bubble:.1%}")


def draw_convergence(axes: Axes, plan: PlacementPlan) -> None:
    """Draw the best chromosome's objective by generation."""
    generations, values = zip(*plan.convergence, strict=True)
    axes.plot(generations, values, color=BLUE, linewidth=1.3, drawstyle="steps-post")
    axes.axhline(values[-1], color=GREY, linewidth=0.8)
    axes.set_xlim(0, max(generations[-1], 1))
    axes.set_xlabel("generation of GABRA")
    axes.set_ylabel(plan.objective)
    whole_ticks(axes)


def bars(plan: PlacementPlan) -> Iterable[FigureBar]:
    """Yield the work of each stage; segments of one pass that run without a gap form one bar."""
    for stage in range(len(plan.problem.devices)):
        last: FigureBar | None = None
        for event in plan.chosen.trace.events:
            if event.stage != stage or event.stream != COMPUTE or event.end <= event.start:
                continue
            kind, number = event.instruction.letter, getattr(event.instruction, "micro", None)
            micro = "" if number is None else str(number)
            joins = last is not None and (last.kind, last.micro, last.end) == (kind, micro, event.start)
            if last is not None and not joins:
                yield last
            start = last.start if last is not None and joins else event.start
            last = FigureBar(stage, kind, micro, start, event.end)
        if last is not None:
            yield last


def _spaced(layers: list[int], count: int) -> list[int]:
    """Return the members of ``layers`` (ascending, of ``count`` in all) whose names do not overlap."""
    found: list[int] = []
    for layer in layers:
        if not found or layer - found[-1] >= count / NAMED:
            found.append(layer)
    return found


def _short(name: str) -> str:
    return name if len(name) <= LONGEST else f"{name[: LONGEST - 1]}…"


def colour(stage: int) -> str:
    """Return the colour of a stage; colours repeat after seven stages."""
    return COLOURS[stage % len(COLOURS)]
