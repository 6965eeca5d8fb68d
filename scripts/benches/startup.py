"""Time to the first iteration of LeNet: ``bpt train``, on one process and by mpirun, beside what PyTorch takes."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean, median

from bpt.config.proto.text import to_text
from scripts.benches.harness.arguments import at_least
from scripts.benches.harness.launch import ROOT, environment, mpirun, reason
from scripts.benches.harness.nets import reading_net, solver_param, write_images
from scripts.benches.harness.turns import in_turn
from scripts.benches.startup_probe import PHASES

HELP = "time to the first iteration, by phases: one process, ranks, plain PyTorch"
BATCH = 64
PROBE = Path(__file__).with_name("startup_probe.py")
IMPORT_TORCH = "import torch"
PLAIN = f"""
import torch
from torch import nn
net = nn.Sequential(
    nn.Conv2d(1, 20, 5), nn.MaxPool2d(2), nn.Conv2d(20, 50, 5), nn.MaxPool2d(2),
    nn.Flatten(), nn.Linear(800, 500), nn.ReLU(), nn.Linear(500, 10),
)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9, weight_decay=0.0005)
loss = nn.functional.cross_entropy(net(torch.rand({BATCH}, 1, 28, 28)), torch.randint(0, 10, ({BATCH},)))
loss.backward()
optimizer.step()
loss.item()
"""
END = """
import os, time
print(time.monotonic(), time.process_time(), flush=True)
os._exit(0)  # torch takes its time to be taken down again
"""

Seconds = tuple[float, float]  # by the clock, of CPU


@dataclass
class Program:
    """What is started again and again.

    Attributes:
        name: in the table.
        start: runs it once, and returns the seconds of its phases.
        runs: what was returned.
    """

    name: str
    start: Callable[[], dict[str, Seconds]]
    runs: list[dict[str, Seconds]] = field(default_factory=list)

    def median(self, phase: str) -> Seconds:
        """Of all runs."""
        wall, cpu = zip(*(run.get(phase, (0.0, 0.0)) for run in self.runs), strict=True)
        return median(wall), median(cpu)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rounds", type=at_least(1), default=7, help="runs of each program (default %(default)s)")
    parser.add_argument(
        "--ranks", default="2", help="numbers of ranks to start by mpirun, by commas; none: '' (default %(default)s)"
    )
    parser.add_argument(
        "--against", metavar="PATH", default="", help="another checkout of bpt, measured in turn with this one"
    )
    parser.add_argument("--threads", type=at_least(1), default=1, help="of each process (default %(default)s)")


def run(arguments: argparse.Namespace) -> None:
    checkouts = [("bpt", ROOT)]
    if arguments.against:
        other = Path(arguments.against).resolve()
        if not (other / "bpt" / "cli" / "main.py").is_file():
            sys.exit(f"error: --against {arguments.against}: no checkout of bpt")
        checkouts.insert(0, ("other", other))
    counts = [1, *(at_least(2)(text) for text in arguments.ranks.split(",") if text)]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        words = train_words(folder)
        plain = [
            Program(what, lambda code=code: plain_start(code, arguments.threads))  # type: ignore[misc]
            for what, code in (("import torch", IMPORT_TORCH), ("plain LeNet", PLAIN))
        ]
        ours = [
            Program(
                f"{what}, {count} rank{'s' * (count > 1)}",
                lambda root=root, count=count: bpt_start(root, words, folder, count, arguments.threads),  # type: ignore[misc]
            )
            for count in counts
            for what, root in checkouts
        ]
        programs = [*plain, *ours]
        for program in programs:  # so that bytecode is written, and files are in memory
            program.start()
        for program in in_turn(programs, arguments.rounds):
            program.runs.append(program.start())
    print(f"medians of {arguments.rounds} runs, in turn; ms by the clock / ms of CPU, the mean of the ranks")
    for line in (*table(ours), "", *totals(programs, plain[0])):
        print(line)


def train_words(folder: Path) -> list[str]:
    """The command line of one iteration of LeNet, with images of its own."""
    images = write_images(folder / "images", "lenet", 4 * BATCH)
    solver = solver_param(reading_net("lenet", images, BATCH), 0.01, max_iter=1, snapshot_prefix=str(folder / "lenet"))
    path = folder / "solver.prototxt"
    path.write_text(to_text(solver))
    return ["train", "--solver", str(path)]


def bpt_start(root: Path, words: Sequence[str], folder: Path, ranks: int, threads: int) -> dict[str, Seconds]:
    """Run one iteration with the bpt of the checkout ``root``; the seconds of each phase, the mean of all ranks."""
    answer = folder / "phases"
    launcher = mpirun(ranks) if ranks > 1 else []
    _call([*launcher, sys.executable, str(PROBE), str(answer), str(time.monotonic()), *words], threads, root)
    seen = [json.loads(Path(f"{answer}.{rank}").read_text()) for rank in range(ranks)]
    return {phase: (mean(s[phase][0] for s in seen), mean(s[phase][1] for s in seen)) for phase in PHASES}


def plain_start(code: str, threads: int) -> dict[str, Seconds]:
    """Run a program of Python; all its seconds, until its last line is done, are those of one phase."""
    start = time.monotonic()
    end, cpu = map(float, _call([sys.executable, "-c", code + END], threads, ROOT).split())
    return {"all": (end - start, cpu)}


def _call(command: Sequence[str], threads: int, root: Path) -> str:
    variables = environment(threads) | {"PYTHONPATH": str(root)}
    variables.pop("PYTHONDONTWRITEBYTECODE", None)  # or all of bpt is compiled each time
    done = subprocess.run(
        command, env=variables, cwd=os.sep, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
    )
    if done.returncode:
        sys.exit(f"error: {reason(done.stderr)}")
    return done.stdout


def total(program: Program) -> Seconds:
    """Until the first iteration is done: the median of the runs' sums."""
    sums = [tuple(sum(seconds[place] for seconds in run.values()) for place in range(2)) for run in program.runs]
    wall, cpu = zip(*sums, strict=True)
    return median(wall), median(cpu)


def _cell(seconds: Seconds) -> str:
    return f"{seconds[0] * 1e3:>10.0f} /{seconds[1] * 1e3:>6.0f}"


def table(programs: Sequence[Program]) -> list[str]:
    """A line a phase, a column a program."""
    lines = [f"{'phase':<22}" + "".join(f"{program.name:>18}" for program in programs)]
    for phase in PHASES:
        lines.append(f"{phase:<22}" + "".join(_cell(program.median(phase)) for program in programs))
    return [*lines, f"{'all':<22}" + "".join(_cell(total(program)) for program in programs)]


def totals(programs: Sequence[Program], base: Program) -> list[str]:
    """A line a program: its time, and how it compares with ``base``."""
    lines = [f"{'program':<22}{'all':>18}{'/ ' + base.name:>16}, of CPU"]
    for program in programs:
        ratios = [one / other for one, other in zip(total(program), total(base), strict=True)]
        lines.append(f"{program.name:<22}{_cell(total(program))}{ratios[0]:>16.2f}{ratios[1]:>8.2f}")
    return lines
