"""The report of ``bpt simulate``: tables of strategies and of nodes, CSV, and a figure of each node's time."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING

from bpt.base.atomic import write_text
from bpt.base.log import columns
from bpt.parallel.outer.simulation.outcome import NodeOutcome, SimulationOutcome
from bpt.perf.simulate.simulation import SimulationResult
from bpt.train.outer.report.style import BLUE, GREY, ORANGE, SKY, new_figure, save

if TYPE_CHECKING:
    from matplotlib.axes import Axes


_MB = 1e6
_STRATEGIES = (
    "strategy", "seconds", "computing", "waiting", "idle", "balance_index", "eq8_waiting_seconds", "updates",
    "mean_staleness", "max_staleness", "weight_bytes", "eq11_bytes", "data_bytes", "events",
)  # fmt: skip
_NODES = (
    "strategy", "node", "kind", "samples_per_second", "samples", "trained", "passes", "computing_seconds",
    "waiting_seconds", "idle_seconds", "died", "warm_up_seconds",
)  # fmt: skip


def lines(simulated: SimulationResult) -> Iterator[str]:
    """Yield the whole report: the run, a line for each strategy and, for a single one, a line for each kind of node."""
    facts, nodes = simulated.facts, len(simulated.cluster.nodes)
    yield (
        f"{facts.name}: {facts.parameters:,} parameters ({facts.weights / _MB:.4g} MB), {facts.flops / 1e6:.4g} MFLOP "
        f"a sample; {facts.samples:,} samples, K = {simulated.passes:.4g} passes in batches of {facts.batch}; "
        f"{nodes:,} node{'s' * (nodes > 1)}"
    )
    yield ""
    head = ("strategy", "time s", "computing", "waiting", "idle", "balance", "Eq. 8 s", "updates", "staleness", "MB",
            "of Eq. 11")  # fmt: skip
    yield from columns([head, *(_row(str(name), outcome) for name, outcome in simulated.outcomes.items())], left=1)
    if len(simulated.outcomes) == 1:
        (outcome,) = simulated.outcomes.values()
        yield ""
        yield from kind_lines(outcome)
    yield ""
    yield "computing, waiting (for the server), idle (at the end): mean parts of a node's time. balance: the balance"
    yield "index; Eq. 8: time that all nodes wait for the slowest in each pass, or would under SGWU. staleness:"
    yield "mean and most. MB: weights or gradients moved, both ways; Eq. 11 says 2 c_w m K'."


def kind_lines(outcome: SimulationOutcome) -> Iterator[str]:
    """Yield a line for each kind of node."""
    kinds: dict[str, list[NodeOutcome]] = {}
    for node in outcome.nodes:
        kinds.setdefault(node.name, []).append(node)
    head = ("nodes", "", "samples/s", "samples", "passes", "computing", "waiting", "idle", "died")
    yield from columns([head, *(_kind(name, nodes) for name, nodes in kinds.items())], left=1)


def strategy_rows(simulated: SimulationResult) -> Iterator[tuple[object, ...]]:
    """Yield a head and a row for each strategy; computing, waiting and idle are fractions of the nodes' time."""
    yield _STRATEGIES
    for name, outcome in simulated.outcomes.items():
        yield (
            name, outcome.seconds, outcome.computed, outcome.waited, outcome.idle, outcome.balance,
            outcome.waiting_time, outcome.updates, outcome.mean_staleness, outcome.max_staleness, outcome.weight_bytes,
            outcome.predicted_bytes, outcome.data_bytes, outcome.events,
        )  # fmt: skip


def node_rows(simulated: SimulationResult) -> Iterator[tuple[object, ...]]:
    """Yield a head and a row for each node of each strategy."""
    yield _NODES
    for name, outcome in simulated.outcomes.items():
        for number, node in enumerate(outcome.nodes):
            yield (
                name, number, node.name, node.speed, node.samples, node.trained, node.passes, node.computing,
                node.waiting, node.idle, int(node.died), node.warming,
            )  # fmt: skip


def write_csv(path: str, rows: Iterable[Sequence[object]]) -> None:
    """Write ``rows`` to the file at ``path``.

    Raises:
        WriteError: it could not be written.
    """
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n").writerows(rows)
    write_text(path, text.getvalue())


def _row(name: str, outcome: SimulationOutcome) -> tuple[str, ...]:
    staleness = f"{outcome.mean_staleness:.1f}, {outcome.max_staleness}" if outcome.staleness else ""
    share = outcome.weight_bytes / outcome.predicted_bytes if outcome.predicted_bytes else 1.0
    return (
        name, f"{outcome.seconds:.6g}", f"{outcome.computed:.1%}", f"{outcome.waited:.1%}", f"{outcome.idle:.1%}",
        f"{outcome.balance:.3f}", f"{outcome.waiting_time:.5g}", str(outcome.updates), staleness,
        f"{outcome.weight_bytes / _MB:.5g}", f"{share:.1%}",
    )  # fmt: skip


def _kind(name: str, nodes: Sequence[NodeOutcome]) -> tuple[str, ...]:
    together = sum(node.seconds for node in nodes) or 1.0
    died = sum(node.died for node in nodes)
    return (
        name, f"x {len(nodes)}", _range([node.speed for node in nodes]), _range([node.samples for node in nodes]),
        _range([node.passes for node in nodes]), f"{sum(node.computing for node in nodes) / together:.1%}",
        f"{sum(node.waiting for node in nodes) / together:.1%}", f"{sum(node.idle for node in nodes) / together:.1%}",
        str(died) if died else "",
    )  # fmt: skip


def _range(values: Sequence[float]) -> str:
    least, most = f"{min(values):.4g}", f"{max(values):.4g}"
    return least if least == most else f"{least} - {most}"


PARTS = {"computing": BLUE, "waiting for the server": ORANGE, "idle at the end": GREY, "getting ready": SKY}
HEIGHT = 1.6  # inches of a strategy's panel
BARS = 60  # nodes up to which each has its own bar


def draw(path: str, simulated: SimulationResult) -> None:
    """Draw a panel for each strategy: the nodes, from slow to fast, and how they spent their time.

    The suffix of ``path`` gives the format, PNG or SVG.

    Raises:
        UserError: matplotlib is missing.
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

    handles = [Patch(color=colour, label=label) for label, colour in PARTS.items()]  # all panels share one legend
    figure.legend(handles=handles, loc="outside lower center", ncols=len(PARTS), fontsize=8, frameon=False)
    save(figure, path)


def _panel(axes: Axes, outcome: SimulationOutcome) -> None:
    nodes = sorted(outcome.nodes, key=lambda node: node.speed)
    heights = list(zip(*(accumulate(_parts(node)) for node in nodes), strict=True))
    below: Sequence[float] = (0.0,) * len(nodes)
    for colour, above in zip(PARTS.values(), heights, strict=True):
        if len(nodes) <= BARS:
            seconds = [high - low for high, low in zip(above, below, strict=True)]
            axes.bar(range(len(nodes)), seconds, 0.9, below, color=colour, linewidth=0)
        else:
            axes.fill_between(range(len(nodes)), below, above, step="mid", color=colour, linewidth=0)
        below = above
    axes.set_xlim(-0.5, len(nodes) - 0.5)
    axes.set_xticks([])


def _parts(node: NodeOutcome) -> tuple[float, ...]:
    return node.computing, node.waiting, node.idle, node.warming
