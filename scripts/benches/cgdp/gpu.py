"""All of CGDP that wants a GPU, in one command: times, overlap, and whether two ranks on one GPU equal one process.

For each network, as large as it is and on generated images:

1. Times of an iteration on two ranks that share the GPU, with TREE (the paper's OrigDP), ALLREDUCE and CGDP: layer by
   layer (chunk size 1) and with searched chunks; and without exchange, each rank for itself. The batch of a rank is
   that of the paper's Table 1, or the largest that fits if two ranks of it do not. Phases come from a second turn,
   in which each instruction is waited for.
2. Overlap: torch.profiler traces iterations of the first rank. Printed is how much of the device's time in copies
   between device and host lies under kernels of the computing stream. The traces (chrome://tracing, ui.perfetto.dev)
   stay in the folder of --output.
3. Equality: ``mpirun -n 2 bpt check`` with CGDP, in double precision.
4. Of VGG-16, the largest batch of a rank with TREE and with CGDP, by steps of one image (the paper: 94 and 103), at
   most --largest images. TREE holds gradients of other ranks on a GPU, and CGDP does not.
5. With several GPUs, Fig. 6 of the paper: on 1, 2, 4, … ranks that have a GPU each, TREE and ALLREDUCE beside CGDP.

A part that fails says so, the others go on, and the exit status is 1. Meant to take about ten minutes on a
modern GPU; at its end it tells how long it took.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import torch

from bpt.base.log import columns
from bpt.config.proto.text import to_text
from bpt.system.device import describe_devices
from scripts.benches.cgdp import figures, results
from scripts.benches.cgdp.bench import ALONE_WAY, EXCHANGES, FIXED, SEARCHING
from scripts.benches.cgdp.gpu_trace import TRACED, Copies, copies_of, has_kernels, read_events
from scripts.benches.cgdp.jobs import Way, Work, run_job
from scripts.benches.cgdp.largest_batch import fitting, largest
from scripts.benches.cgdp.nets import NETS, PAPER, TINY, solver_source
from scripts.benches.cgdp.results import SEARCH, Outcome, Search, fixed
from scripts.benches.cgdp.scaling import SCALING, Scaling, scaling_rows, scaling_table
from scripts.benches.harness.arguments import add_nets, add_output, at_least, explain
from scripts.benches.harness.launch import ROOT, JobError, call
from scripts.benches.harness.tables import Tables

HELP = "all of CGDP that needs a GPU: full-size networks, overlap by the profiler, two ranks against one process"
RANKS = 2
WAYS = (*EXCHANGES, Way(fixed(1), FIXED), SEARCHING[SEARCH])
LARGEST, TINY_BATCH = "vgg16", 4  # whose largest batch is searched, and up to which batch in a dry run
CHECKED = 2  # iterations of bpt check
CHECK_BATCH = 4
# Clipped, as the deepest networks are unstable at their start: full updates would make errors of roundings.
CHECK = """base_lr: 1e-4 clip_gradients: 1
parallel_param { exchange: CGDP sync_batch_norm: true cgdp_param { chunk_size: 2 } }"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    explain(parser, __doc__)
    add_nets(parser, PAPER, NETS)
    parser.add_argument("--dry-run", action="store_true", help="the same on the CPU, with tiny images and batches")
    parser.add_argument("--gpu", default="0", metavar="N", help="the device's number (default %(default)s)")
    parser.add_argument(
        "--iterations", type=at_least(1), default=20, help="of a turn; 2 in a dry run (default %(default)s)"
    )
    parser.add_argument(
        "--largest", type=at_least(0), default=256, metavar="N",
        help=f"images up to which the largest batch of {LARGEST} is searched; 0: not (default %(default)s)",
    )  # fmt: skip
    add_output(parser, ROOT / "bench" / "gpu", "CSV files and traces")


@dataclass
class Parts:
    """What was tried, and what of it has failed.

    Attributes:
        failed: name of the part → why.
    """

    failed: dict[str, str] = field(default_factory=dict)

    def attempt(self, name: str, part: Callable[[], object]) -> None:
        """Do a part; if it fails, say so and go on."""
        try:
            part()
        except (JobError, OSError, ValueError, KeyError, ImportError) as error:
            self.failed[name] = str(error)
            print(f"{name}: FAILED: {error}", flush=True)


@dataclass(frozen=True)
class Seen:
    """One network, measured.

    Attributes:
        work: of its jobs, with the batch that fits.
        outcomes: of each way.
        copies: way → direction → copies of TRACED iterations.
    """

    work: Work
    outcomes: dict[str, Outcome]
    copies: dict[str, dict[str, Copies]]


def measure(base: Work, out: Path, folder: Path, parts: Parts) -> Seen:
    """Train one network in all ways, and trace each that exchanges.

    Raises:
        JobError: the first job, which finds the batch that fits and the memory layout for all, has failed.
    """
    probe = replace(base, ways=WAYS[1:2], warm_up=0, iterations=1)
    work, done = fitting(probe, lambda work: run_job(work, folder))
    base = replace(base, batch=work.batch, engine=done.engine)
    seen = Seen(base, {}, {})
    for way in WAYS:
        parts.attempt(f"{base.net}: {way.name}", partial(measure_way, seen, way, out, folder))
    return seen


def measure_way(seen: Seen, way: Way, out: Path, folder: Path) -> None:
    """Train in one way, and trace it; puts what it sees into ``seen``."""
    net, name = seen.work.net, way.name
    trace = out.resolve() / f"{net}_{name.replace(' ', '_')}.trace.json.gz"
    done = run_job(replace(seen.work, ways=(way,), trace="" if way.apart else str(trace)), folder)
    search = None
    if name in done.trials:
        search = Search(done.settling[name], done.turns[name][0].seconds, done.trials[name])
    seen.outcomes[name] = Outcome(done.turns[name], done.lengths.get(name, ()), max(done.peak), search)
    if not way.apart:
        events = read_events(trace)
        if seen.work.gpu and not has_kernels(events):
            raise JobError(f"{trace.name} has no kernels: the profiler cannot see this device")
        seen.copies[name] = copies_of(events)


def overlap_table(seen: Seen) -> Iterator[str]:
    """A line a way: copies of an iteration, and how much of them computing hides."""
    rows = [("way", *(f"{d} {what}" for d in ("D2H", "H2D", "all") for what in ("copies", "ms", "hidden")))]
    for way, directions in seen.copies.items():
        together = directions["D2H"] + directions["H2D"]
        cells: list[str] = []
        for copies in (directions["D2H"], directions["H2D"], together):
            share = f"{copies.share:.1%}" if copies.count else "-"
            cells += [f"{copies.count / TRACED:.0f}", f"{copies.seconds / TRACED * 1e3:.2f}", share]
        rows.append((way, *cells))
    yield from columns(rows, left=1)


def check(name: str, size: int, gpu: str, folder: Path, settings: str = CHECK) -> str:
    """Compare two ranks with one process; returns what ``bpt check`` says at its end.

    Args:
        settings: of the solver, ``parallel_param`` included.

    Raises:
        JobError: they differ, or it could not be compared.
    """
    path = folder / f"{name}.prototxt"
    path.write_text(to_text(solver_source(name, size, CHECK_BATCH, drawn=True).param))
    words = [sys.executable, "-m", "bpt", "check", "--solver", str(path), "--set", settings]
    words += ["--iterations", str(CHECKED), *(["--gpu", gpu] if gpu else [])]
    table = call(words, RANKS).splitlines()[1:]
    return f"{len(table)} parameters are equal after {CHECKED} iterations, up to a relative difference of 1e-5"


def gpu_numbers(devices: int) -> tuple[list[int], list[str]]:
    """1, 2, 4, … ranks, as many as there are devices at most; and the devices' numbers."""
    return [2**power for power in range(devices.bit_length())], [str(number) for number in range(devices)]


IMAGES = ("net", "ranks", "way", "images", "is_largest")


def search_largest(base: Work, most: int, folder: Path, tables: Tables) -> None:
    """Fig. 6 (b): print the largest batch of a rank that fits, with TREE and with CGDP."""
    for way in (WAYS[1], WAYS[-2]):
        work, _ = largest(replace(base, ways=(way,), warm_up=0, iterations=1), lambda work: run_job(work, folder), most)
        at_most = "" if work.batch < most else ", where the search ends"
        print(f"  {base.net}, {way.name}: {work.batch} images a rank{at_most}", flush=True)
        tables.add("largest", IMAGES, [(base.net, base.ranks, way.name, work.batch, work.batch < most)])


COPIES = ("net", "way", "direction", "copies", "seconds", "hidden_seconds", "hidden_share")


def copy_rows(seen: Seen) -> Iterator[tuple[object, ...]]:
    """The copies of an iteration, in the columns of COPIES."""
    for way, directions in seen.copies.items():
        for direction, copies in directions.items():
            seconds = copies.seconds / TRACED, copies.hidden / TRACED
            yield seen.work.net, way, direction, copies.count / TRACED, *seconds, copies.share


def one_net(name: str, arguments: argparse.Namespace, parts: Parts, tables: Tables) -> None:
    """Everything about one network."""
    dry: bool = arguments.dry_run
    images = (TINY if dry else PAPER)[name]
    gpu, out = "" if dry else arguments.gpu, arguments.out
    iterations, warm_up, threads = (2, 1, 1) if dry else (arguments.iterations, 3, 0)
    base = Work(
        name, images.size, images.batch, RANKS, iterations=iterations, warm_up=warm_up, gpu=gpu, threads=threads
    )
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)

        def times() -> None:
            seen = measure(base, out, folder, parts)
            work = seen.work
            fits = "" if work.batch == images.batch else f" (the paper's {images.batch} do not fit)"
            where = "on the CPU" if dry else "on one GPU"
            print(f"{name}: {RANKS} ranks {where}, each {work.batch} images{fits} of {work.size}x{work.size}")
            lines = (*results.table(seen.outcomes), *results.verdicts(seen.outcomes), "", *overlap_table(seen))
            print("\n".join(f"  {line}".rstrip() for line in lines), flush=True)
            facts = (name, RANKS, work.size, work.batch, work.engine)
            tables.add("summary", results.SUMMARY, results.summary_rows(facts, seen.outcomes))
            tables.add("trials", results.TRIALS, results.trial_rows(name, seen.outcomes))
            tables.add("copies", COPIES, copy_rows(seen))

        parts.attempt(f"{name}: times", times)

        if name == LARGEST and arguments.largest:
            most = min(arguments.largest, TINY_BATCH) if dry else arguments.largest
            parts.attempt(f"{name}: largest batch", lambda: search_largest(base, most, folder, tables))

        def scaling() -> None:
            ranks, devices = ([1, 2], []) if dry else gpu_numbers(torch.cuda.device_count())
            ways = [*EXCHANGES[1:], Way(fixed(1), FIXED)]
            scaling = Scaling(base, ALONE_WAY, ways, lambda work: run_job(work, folder), devices)
            scaled = scaling.measure(ranks, 1)
            print("\n".join(f"  {line}".rstrip() for line in scaling_table(scaled)), flush=True)
            tables.add("scaling", SCALING, scaling_rows(name, base.batch, scaled))
            figures.draw_scaling(out / f"{name}_scaling.png", f"{name}, batch {base.batch} each", scaled)
            if scaling.failed:
                raise JobError("; ".join(f"{what}: {why}" for what, why in scaling.failed.items()))

        if dry or torch.cuda.device_count() > 1:
            parts.attempt(f"{name}: scaling", scaling)
        parts.attempt(f"{name}: check", lambda: print(f"  check: {check(name, images.size, gpu, folder)}\n"))


def run(arguments: argparse.Namespace) -> None:
    if not arguments.dry_run and not torch.cuda.is_available():
        sys.exit("this machine has no usable CUDA device; --dry-run does the same on the CPU, with tiny images")
    start = time.monotonic()
    arguments.out.mkdir(parents=True, exist_ok=True)
    print("dry run: tiny images on the CPU" if arguments.dry_run else "\n".join(describe_devices()))
    print(f"PyTorch {torch.__version__}\n\n{results.LEGEND}")
    print("copies: of an iteration between device and host; hidden: the share of their time under computing\n")
    parts = Parts()
    tables = Tables(arguments.out)
    for name in arguments.nets:
        one_net(name, arguments, parts, tables)
    print(f"numbers and traces: {arguments.out}; {(time.monotonic() - start) / 60:.1f} minutes")
    if arguments.dry_run:
        print("This was a dry run: tiny images on the CPU. Its times say nothing about a GPU.")
    if parts.failed:
        sys.exit(f"FAILED: {', '.join(parts.failed)}")
