"""``scripts/bench hybrid --memory``: what each rank of a pipeline of two stages holds, against one process.

The devices are said to have a little more memory than half of what the net needs, by which BLOCK then cuts. Without
such limits it cuts by time alone, and of VGG-16 the second stage gets nearly all parameters.

Both memory layouts are measured. By channels-last, torch copies the weights of each convolution anew for each
micro-batch, and glibc's heap is split so that up to 200 MiB more are resident than are in use. Its cache of small
blocks does that: with ``GLIBC_TUNABLES=glibc.malloc.tcache_count=0`` in the environment most of it is not there.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path

from bpt.config.plan.resolve import read_plan
from bpt.perf.planner.plan_layers import plan_solver
from scripts.benches.harness.nets import Images
from scripts.benches.harness.peaks import peaks
from scripts.benches.hybrid.nets import solver_text

GOAL = 0.65
LIMIT = 0.55
LAYOUTS = ("CONTIGUOUS", "CHANNELS_LAST")
_MIB = 2**20


def measure(name: str, images: Images, schedules: Sequence[str], micro_batches: int, folder: Path) -> Iterator[str]:
    """A net in one process and on two stages, as lines of a table."""
    solver = folder / f"{name}.memory.prototxt"
    solver.write_text(solver_text(name, images))
    devices = folder / f"{name}.memory.devices"
    devices.write_text(2 * f"node {{ gflops: 1 memory: {memory(solver)} }}\n")
    kind = f"{images.batch} images of {images.size} x {images.size}"
    for layout in LAYOUTS:
        yield f"{name}, {kind}, {micro_batches} micro-batches, {layout}: MiB at the peak"
        yield from _by_schedule(solver, devices, schedules, micro_batches, f"engine: {layout}")


def _by_schedule(
    solver: Path, devices: Path, schedules: Sequence[str], micro_batches: int, engine: str
) -> Iterator[str]:
    (alone,) = peaks(solver, 1, engine)
    yield f"{'':<14} {'training alone':>24} {'of one process':>16} {'whole process':>18} {'of one process':>16}"
    yield f"{'one process':<14} {alone.trained / _MIB:>24.0f} {'':>16} {alone.whole / _MIB:>18.0f}"
    for schedule in schedules:
        param = f'pipeline_param {{ devices: "{devices}" schedule: {schedule} micro_batches: {micro_batches} }}'
        found = peaks(solver, 2, engine, f"parallel_param {{ num_stages: 2 {param} }}")
        trained, whole = [peak.trained for peak in found], [peak.whole for peak in found]
        worst = max(trained) / alone.trained
        yield (
            f"{schedule:<14} {_numbers(trained):>24} {_shares(trained, alone.trained):>16} {_numbers(whole):>18} "
            f"{_shares(whole, alone.whole):>16}"
        )
        yield f"{'':<14} greatest share of training {worst:.2f}, goal {GOAL:g}: {'met' if worst <= GOAL else 'not met'}"


def memory(solver: Path) -> int:
    """MiB of each of two devices that hold LIMIT of what the net needs on one, as allocators count.

    And the gradient of the largest parameter, which is added up over micro-batches.
    """
    costs = plan_solver(read_plan(solver, ["parallel_param { num_stages: 2 }"])).problem.costs
    needed = LIMIT * sum(cost.parameters + cost.activations for cost in costs)
    return math.ceil((needed + max(cost.largest for cost in costs)) / _MIB)


def _numbers(sizes: Sequence[int]) -> str:
    return " / ".join(f"{size / _MIB:.0f}" for size in sizes)


def _shares(sizes: Sequence[int], whole: int) -> str:
    return " / ".join(f"{size / whole:.2f}" for size in sizes)
