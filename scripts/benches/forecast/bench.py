"""How true forecasts are: predicted beside measured, for times of an iteration, for what auto chooses, and for memory.

--accuracy: more than 60 configurations, on one host and on test beds of unlike hosts. Of each network in each place a
job measures the layers (bpt plan --measure), the ranks and the links (bpt doctor --cluster), and then trains by one way
after the other. The median iteration counts; with --rounds of all, and of what was predicted, too, the median round.
How far rounds are apart is told beside: no forecast can be nearer than that.

    error  = predicted / measured time of an iteration - 1        goals: 5 % in the mean, 15 % at worst
    order  = of pairs that differ by more than 10 %, the part whose order was predicted          goal: 98 %

--auto: networks and places that nothing was tuned by. ``auto: true`` chooses as it does in training, by what it
measures itself; then the job trains by plain data parallelism, by others that could be good, and by that plan.

    behind = time by its plan / time by the best measured - 1     goal: at most 5 %
    gain   = time by plain data parallelism / time by its plan - 1, on unlike hosts or slow links; goal: at least 20 %

--memory: what each rank takes at its peak, besides what its process held before, and the forecast; goal: within 10 %.

Without any of these it does all three. What is measured is added to CSV files in --output at once; what stands there is
not measured again, so that a run that was stopped goes on. The tables are also written as report.md. Test beds need
Linux and root, and all of it a machine that does nothing else. Data are there at once, and nothing is learned.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from scripts.benches.forecast import memory, results
from scripts.benches.forecast.cases import (
    ACCURACY,
    AUTO,
    CASES,
    CHOSEN,
    MEMORY,
    QUICK,
    WAYS,
    Case,
    MemoryCase,
    Place,
)  # fmt: skip
from scripts.benches.forecast.nets import write_solver
from scripts.benches.forecast.results import Held, Row
from scripts.benches.harness.arguments import add_output, at_least, explain
from scripts.benches.harness.launch import ROOT, JobError, run_worker
from scripts.benches.harness.testbed import end_by_signals, on_testbed, run_on_hosts

HELP = "predicted beside measured: times of more than 60 configurations, what auto chooses, memory (Linux, root)"
SECONDS, FEW_SECONDS = 2.5, 1.0  # to train by each way
MODULE = "forecast.ranks"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    explain(parser, __doc__)
    parser.add_argument("--accuracy", action="store_true", help="times of an iteration only")
    parser.add_argument("--auto", action="store_true", help="what auto chooses only")
    parser.add_argument("--memory", action="store_true", help="memory only")
    parser.add_argument(
        "--cases", nargs="+", default=[], metavar="WORDS", help="those with one of these in their names; see --list"
    )
    parser.add_argument("--list", action="store_true", help="print the names of the cases, and end")
    parser.add_argument(
        "--rounds", type=at_least(1), default=1, help="how often to measure all times (default %(default)s)"
    )
    parser.add_argument(
        "--quick", action="store_true", help="a few, on this machine without a test bed, in two minutes"
    )
    add_output(parser, ROOT / "bench" / "forecast", "CSV files and report.md")


def run(arguments: argparse.Namespace) -> None:
    cases, of_memory = asked_for(arguments)
    if arguments.list:
        print(*(case.name for case in cases), *(case.name for case in of_memory), sep="\n")
        return
    out = arguments.out / "quick" if arguments.quick else arguments.out
    out.mkdir(parents=True, exist_ok=True)
    times, peaks = out / "times.csv", out / "memory.csv"
    end_by_signals()
    start = time.perf_counter()
    try:
        with tempfile.TemporaryDirectory() as folder:
            for turn in range(1, arguments.rounds + 1):
                measure_times(cases, times, FEW_SECONDS if arguments.quick else SECONDS, Path(folder), turn)
            measure_memory(of_memory, peaks, Path(folder))
    except JobError as error:
        sys.exit(f"error: {error}\nwhat was measured is in {out}; the same command goes on from there")
    print(f"measured in {time.perf_counter() - start:.0f} s")
    rows, held = results.read(times, Row), results.read(peaks, Held)
    (out / "report.md").write_text("\n".join(results.tables(rows, held)))
    print(*results.accuracy(rows), *results.auto(rows), *results.memory(held), sep="\n")
    print(f"numbers and tables: {out}")


def asked_for(arguments: argparse.Namespace) -> tuple[list[Case], list[MemoryCase]]:
    """What the command line says to measure."""
    parts = {part for part in (ACCURACY, AUTO, "memory") if getattr(arguments, part)} or {ACCURACY, AUTO, "memory"}
    timed, of_memory = (QUICK, MEMORY[:1]) if arguments.quick else (CASES, MEMORY)
    cases = [case for case in timed if case.part in parts and is_named(case.name, arguments.cases)]
    memories = [case for case in of_memory if "memory" in parts and is_named(case.name, arguments.cases)]
    if not cases and not memories:
        sys.exit(f"error: --cases {' '.join(arguments.cases)}: there is no such case; --list prints all")
    return cases, memories


def is_named(name: str, words: Sequence[str]) -> bool:
    """Whether one of the words is in the name, or there are none."""
    return not words or any(word in name for word in words)


def measure_times(cases: Iterable[Case], path: Path, seconds: float, folder: Path, turn: int = 1) -> None:
    """Measure, place by place, what the file at ``path`` lacks of a turn.

    Raises:
        JobError: ranks have failed.
    """
    by_place: dict[Place, list[tuple[Case, dict[str, str]]]] = {}
    done = {row.key for row in results.read(path, Row) if row.turn == turn}
    for case in cases:
        if missing := missing_of(case, done):
            by_place.setdefault(case.place, []).append((case, missing))
    for place, missing_there in by_place.items():
        with tempfile.TemporaryDirectory(dir=folder) as of_place:  # a profile is of the hosts that it was measured on
            cases_there = [
                {"part": case.part, "place": str(place), "net": case.net, "ways": ways,
                 "solver": str(write_solver(case.net, case.images, Path(of_place)))}
                for case, ways in missing_there
            ]  # fmt: skip
            measure_place(place, cases_there, path, seconds, Path(of_place), turn)


def measure_place(
    place: Place, cases: Sequence[Mapping[str, Any]], path: Path, seconds: float, folder: Path, turn: int
) -> None:
    """Measure cases in their place, and print what was found."""
    known = len(results.read(path, Row))
    print(place, flush=True)
    order = {"rows": str(path.resolve()), "seconds": seconds, "cases": cases, "turn": turn}
    try:
        if place.hosts:
            with on_testbed(place.hosts, place.bandwidth):
                run_on_hosts(MODULE, order, folder)
        else:
            run_worker(MODULE, order, folder, place.ranks)
    finally:
        for row in results.read(path, Row)[known:]:
            print(
                f"  {row.net:<16} {row.way:<18} predicted {row.predicted * 1e3:8.1f} ms, measured "
                f"{row.measured * 1e3:8.1f}: {row.error:+.1%}", flush=True,
            )  # fmt: skip


def missing_of(case: Case, done: set[tuple[str, str, str, str]]) -> dict[str, str]:
    """The ways that are still to be measured, and what stands in ``parallel_param``; what auto chooses comes last, as
    it may be one of the others."""
    ways = {way: WAYS[way] for way in case.ways} | ({CHOSEN: ""} if case.part == AUTO else {})
    return {way: text for way, text in ways.items() if (case.part, str(case.place), case.net, way) not in done}


def measure_memory(cases: Iterable[MemoryCase], path: Path, folder: Path) -> None:
    """Measure what the file at ``path`` lacks.

    Raises:
        JobError: ranks have failed.
    """
    done = {row.key for row in results.read(path, Held)}
    for case in cases:
        if (case.net, case.ranks, case.way) in done:
            continue
        for row in (rows := memory.measured(case, folder)):
            print(
                f"{case.name}, rank {row.rank}: predicted {row.predicted / 2**20:.0f} MiB, measured "
                f"{row.measured / 2**20:.0f}: {row.error:+.1%}", flush=True,
            )  # fmt: skip
        results.append(path, *rows)
