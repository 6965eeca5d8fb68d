"""Pipelines on unlike hosts: the placement that ``bpt plan`` finds against an even split, on ``scripts/testbed``.

Of each net, the ranks first measure what a user would: layers, on each host at the same time, as ``bpt plan --measure``
does, and the link between the hosts. The first host's costs are those of the plan; the others' speeds are relative to
it, samples a second; and all that becomes a cluster file. By this file, ``bpt plan`` predicts an iteration's time

    planned  with layers placed by BLOCK for these hosts
    even     with layers placed by BLOCK as if the hosts were alike, on the hosts as they are

and then one job trains both, with each schedule, in turn, so that what else the machine does hits all alike. All that
is repeated, since what a machine can do changes with what else it does, and the medians count.

    gain      = time of an iteration with the even split / with the planned placement
    achieved  = measured gain / predicted gain                   goal: at least 90 %
    error     = predicted time / measured time - 1               goal: within 15 %

``--rivals`` instead trains 3D-ResAttNet on this machine alone, as its paper's Fig. 6 does: by one process, data
parallelism, DistributedDataParallel, DDG, FDG and HYBRID; speed-up, loss and accuracy by time. ``--quick`` is a small
run of it. See rivals.py for what each is.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from statistics import fmean
from typing import Any

from bpt.base.errors import BptError
from bpt.config.plan.resolve import resolve
from bpt.config.proto.sources import read_solver
from bpt.perf.planner.plan_layers import plan_solver
from bpt.perf.planner.plan_report import PlacementForecast, PlacementPlan
from scripts.benches.harness.arguments import add_output, at_least, explain, some_of
from scripts.benches.harness.launch import ROOT
from scripts.benches.harness.nets import Images
from scripts.benches.harness.testbed import add_hosts, end_by_signals, on_testbed, run_on_hosts
from scripts.benches.hybrid import memory, rivals
from scripts.benches.hybrid.nets import DEFAULT, IMAGES, solver_text
from scripts.benches.hybrid.results import Comparison, Seen, Side, results, table, verdict
from scripts.benches.hybrid.rival_ways import NAMES

HELP = "pipelines on unlike hosts of scripts/testbed: bpt plan against an even split (Linux, root); --rivals: Fig. 6"
HOSTS, BANDWIDTH = "a:1.0,b:0.4", "1gbit"
SCHEDULES = "GPIPE,ONE_F_ONE_B"
DELAYED = "DELAYED"  # alone: it is measured otherwise


def add_arguments(parser: argparse.ArgumentParser) -> None:
    number = at_least(1)
    explain(parser, __doc__)
    parser.add_argument("--nets", default=",".join(DEFAULT), help="which, separated by commas (default %(default)s)")
    parser.add_argument("--batch", type=number, help="samples of an iteration (default: see hybrid/nets.py)")
    parser.add_argument("--size", type=number, help="of the square images, of all nets (default: the same)")
    parser.add_argument("--schedules", default=SCHEDULES, help="which, by commas, or DELAYED (default %(default)s)")
    parser.add_argument("--micro-batches", type=number, default=8, help="of a batch (default %(default)s)")
    parser.add_argument(
        "--repeats", type=number, default=3, help="of all, calibration included; medians count (default %(default)s)"
    )
    parser.add_argument("--rounds", type=number, default=2, help="turns of each pipeline (default %(default)s)")
    parser.add_argument("--iterations", type=number, default=3, help="of a turn (default %(default)s)")
    parser.add_argument("--passes", type=number, default=5, help="that costs are measured in (default %(default)s)")
    add_hosts(parser, HOSTS, BANDWIDTH, "of the test bed, two of them")
    parser.add_argument("--memory", action="store_true", help="each rank's peak against one process; needs no test bed")
    parser.add_argument("--rivals", action="store_true", help="Fig. 6 on this machine; needs no test bed")
    parser.add_argument(
        "--quick", action="store_true", help="the same, small: two ranks, a few iterations, two minutes"
    )
    parser.add_argument(
        "--ways",
        type=some_of(NAMES, "way"),
        default=",".join(NAMES),
        help="of --rivals (default: all)",
    )
    parser.add_argument("--ranks", type=ranks, default="2,4", help="of --rivals (default %(default)s)")
    parser.add_argument("--train", type=number, default=162, help="iterations of --rivals (default %(default)s)")
    add_output(parser, ROOT / "bench" / "hybrid", "CSV and PNG files of --rivals")
    parser.add_argument("--folder", type=Path, help="keep what was measured there (default: nowhere)")


def ranks(text: str) -> list[int]:
    """Whole numbers above 1, by commas, for argparse."""
    return sorted({at_least(2)(word) for word in text.split(",")})


def run(arguments: argparse.Namespace) -> None:
    if arguments.rivals or arguments.quick:
        rivals.run(arguments)
        return
    if DELAYED in arguments.schedules.split(",") and arguments.schedules != DELAYED:
        sys.exit("error: --schedules: DELAYED is measured in whole batches, and so alone")
    end_by_signals()
    with tempfile.TemporaryDirectory() as scratch:
        folder = arguments.folder.resolve() if arguments.folder else Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        if arguments.memory:
            for name in arguments.nets.split(","):
                lines = memory.measure(
                    name, images_of(name, arguments), arguments.schedules.split(","), arguments.micro_batches, folder
                )
                for line in lines:
                    print(line, flush=True)
            return
        comparisons: list[Comparison] = []
        try:
            with on_testbed(arguments.hosts, arguments.bandwidth) as words:
                print(words, flush=True)
                for _ in range(arguments.repeats):
                    for name in arguments.nets.split(","):
                        comparisons += compare(name, arguments, folder)
        except BptError as error:
            sys.exit(f"error: {error}")
    found = results(comparisons)
    print(f"medians of {arguments.repeats} repeats, ms an iteration")
    print(*table(found), *verdict(found), sep="\n")


def images_of(name: str, arguments: argparse.Namespace) -> Images:
    """What a net trains on: see nets.py, unless the command line says otherwise."""
    images = IMAGES[name]
    return Images(arguments.size or images.size, arguments.batch or images.batch)


def compare(name: str, arguments: argparse.Namespace, folder: Path) -> list[Comparison]:
    """Calibrate, plan and train one net."""
    images = images_of(name, arguments)
    solver = folder / f"{name}.prototxt"
    solver.write_text(solver_text(name, images))
    costs = folder / f"{name}.costs"
    # DELAYED's batches travel whole, and so they are measured.
    parts = 1 if arguments.schedules == DELAYED else arguments.micro_batches
    micro = f"parallel_param {{ pipeline_param {{ micro_batches: {parts} }} }}"
    asked = {"solver": str(solver), "set": [micro], "iterations": arguments.passes, "costs": str(costs)}
    found = run_on_hosts("hybrid.calibration", asked, folder)
    print(*told(name, images, found), sep="\n", flush=True)
    devices, alike = folder / f"{name}.devices", folder / f"{name}.alike"
    devices.write_text(cluster_text(found, images.batch))
    alike.write_text(cluster_text(found, images.batch, alike=True))

    def fields(schedule: str, file: Path) -> str:
        return (
            f'parallel_param {{ num_stages: 2 pipeline_param {{ devices: "{file}" costs: "{costs}.0" '
            f"schedule: {schedule} micro_batches: {parts} }} }}"
        )

    schedules = arguments.schedules.split(",")
    plans = {schedule: plan_solver(resolve(read_solver(solver, [fields(schedule, devices)]))) for schedule in schedules}
    ways = {
        f"{schedule} {side}": [fields(schedule, file)]
        for schedule in schedules
        for side, file in (("even", alike), ("planned", devices))
    }
    order = {"solver": str(solver), "ways": ways, "rounds": arguments.rounds, "iterations": arguments.iterations}
    seen = {way: Seen.read(each) for way, each in run_on_hosts("hybrid.ranks", order, folder).items()}
    comparisons = [
        Comparison(
            name, schedule,
            even=side_of(plan, plan.even, seen[f"{schedule} even"]),
            planned=side_of(plan, plan.chosen, seen[f"{schedule} planned"]),
        )
        for schedule, plan in plans.items()
    ]  # fmt: skip
    print(*table(results(comparisons)), sep="\n", flush=True)
    return comparisons


def side_of(plan: PlacementPlan, outlook: PlacementForecast, seen: Seen) -> Side:
    """A placement, as it was predicted and as it was seen; it must be the same one."""
    stages = [
        stage
        for segment, stage in zip(outlook.segments, outlook.stages, strict=True)
        for _ in range(segment.start, segment.end)
    ]
    assert tuple(stages) == seen.stages, (stages, seen.stages)
    return Side(plan.graph.nodes[stages.index(1)].name, outlook.seconds, outlook.busy, seen)


def cluster_text(found: dict[str, Any], batch: int, alike: bool = False) -> str:
    """The hosts as ``pipeline_param { devices }`` wants them.

    Args:
        found: by the calibration.
        alike: give all their mean speed.
    """
    seconds = [sum(times) for times in zip(found["forward"], found["backward"], found["update"], strict=True)]
    speeds = [batch / own for own in seconds]
    if alike:
        speeds = [fmean(speeds)] * len(speeds)
    return "".join(
        f'node {{ name: "{host}" samples_per_second: {speed:.12g} '
        f"latency: {found['latency'] / 2:.9g} bandwidth: {found['bandwidth'] * 8 / 1e6:.9g} }}\n"
        for host, speed in zip(found["hosts"], speeds, strict=True)
    )


def told(name: str, images: Images, found: dict[str, Any]) -> list[str]:
    """What the calibration has found, in words."""
    seconds = zip(found["hosts"], found["forward"], found["backward"], found["update"], strict=True)
    hosts = "; ".join(
        f"{host}: forward {forward * 1e3:.0f} ms, backward {backward * 1e3:.0f}, update {update * 1e3:.0f}"
        for host, forward, backward, update in seconds
    )
    return [
        f"{name}, {images.batch} images of {images.size} x {images.size}: {hosts}",
        f"  link: latency {found['latency'] * 1e3:.3g} ms, {found['bandwidth'] * 8 / 1e6:.0f} Mbit/s",
    ]
