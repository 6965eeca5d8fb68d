"""Fig. 13 of the BPT-CNN paper, measured: the time to an accuracy, by computing nodes and by the cores of a node.

    nodes     BPT-CNN (AGWU+IDPA) and asynchronous SGD on the first hosts, the fastest first
    threads   BPT-CNN on one node, which computes by the inner layer (TASK_DAG) with so many threads

The paper's 5 to 35 nodes of 1 to 16 cores are simulated: ``scripts/bench figures``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bpt.base.log import columns
from bpt.perf.simulate.simulation import Strategy
from bpt.train.outer.report import draw_lines
from scripts.benches.bptcnn.results import passes_to
from scripts.benches.harness.outer_jobs import RIVAL, Jobs, Left

BPT_CNN = Strategy("AGWU", "IDPA")
LEVEL = 0.75  # as in the paper
NODES, THREADS = "nodes", "threads"
HEAD = ("axis", "value", "way", "seed", "seconds", "passes_to_level", "seconds_to_level")


@dataclass(frozen=True)
class AxisRun:
    """One run.

    Attributes:
        axis: NODES or THREADS.
        value: how many of them.
        level: the accuracy.
    """

    axis: str
    value: int
    way: Strategy
    seed: int
    left: Left
    level: float = LEVEL

    @property
    def row(self) -> tuple[object, ...]:
        """In the columns of HEAD; ``inf`` passes and no seconds: no test reached the accuracy."""
        record = self.left.record
        seconds = record.time_to(self.level)
        passes = passes_to(record, self.level)
        none = "" if seconds is None else seconds
        return self.axis, self.value, str(self.way), self.seed, record.execution_time, passes, none


def by_nodes(jobs: Jobs, seeds: Iterable[int]) -> Iterator[AxisRun]:
    """Fig. 13 (a): train on 1, 2, … of the computing hosts."""
    for seed in seeds:
        for nodes in range(1, jobs.nodes + 1):
            for way in (BPT_CNN, RIVAL):
                all_of_them = nodes == jobs.nodes  # which the comparison has trained
                yield AxisRun(NODES, nodes, way, seed, jobs.train(way, seed, 0 if all_of_them else nodes))


def by_threads(jobs: Jobs, seeds: Iterable[int], threads: Iterable[int]) -> Iterator[AxisRun]:
    """Fig. 13 (b): train on one node with so many threads."""
    for seed in seeds:
        for number in threads:
            yield AxisRun(THREADS, number, BPT_CNN, seed, jobs.train(BPT_CNN, seed, 1, number))


def numbers_of_threads(cores: int) -> list[int]:
    """1, 2, 4, …, as many as there are cores at most."""
    return [2**power for power in range(cores.bit_length())]


def table(runs: Sequence[AxisRun]) -> Iterator[str]:
    """A line for each run."""
    lines = [["axis", "value", "way", "seed", "seconds", f"passes to {LEVEL:g}", f"seconds to {LEVEL:g}"]]
    for run in runs:
        axis, value, way, seed, seconds, passes, to = run.row
        lines.append(
            [str(axis), str(value), str(way), str(seed), f"{seconds:.2f}", f"{passes:.3g}",
             "never" if to == "" else f"{to:.2f}"]
        )  # fmt: skip
    yield from columns(lines, left=3)


def draw(runs: Sequence[AxisRun], folder: Path, title: str) -> None:
    """Write ``fig13_nodes.png`` and ``fig13_threads.png``: seconds to the accuracy; of several seeds their mean."""
    for axis in dict.fromkeys(run.axis for run in runs):
        series: dict[str, list[tuple[float, float]]] = {}
        for way in dict.fromkeys(str(run.way) for run in runs if run.axis == axis):
            own = [run for run in runs if run.axis == axis and str(run.way) == way]
            for value in sorted({run.value for run in own}):
                times = [run.left.record.time_to(run.level) for run in own if run.value == value]
                known = [seconds for seconds in times if seconds is not None]
                if len(known) == len(times):
                    series.setdefault(way, []).append((value, sum(known) / len(known)))
        if series:
            draw_lines(folder / f"fig13_{axis}.png", title, f"{axis}", f"time to {LEVEL:g} (s)", series)
