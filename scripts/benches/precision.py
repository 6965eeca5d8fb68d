"""What half precision costs in accuracy: the same nets trained from the same seeds in FLOAT32 and in another precision.

lenet     on handwritten digits, as make demo trains it
resnet20  on images made by a formula, in the place of CIFAR-10, for less than an epoch, so that it is not perfect yet
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from scripts.benches.harness.arguments import explain
from scripts.benches.harness.launch import PROTOTXT, ROOT, JobError, environment, reason

HELP = "accuracy of nets that were trained in half precision, beside FLOAT32"
GOAL = 0.5  # points
SCRIPTS = ROOT / "scripts"


@dataclass(frozen=True)
class Case:
    """A net to train.

    Attributes:
        data: the script that makes its images, and its arguments.
        overrides: of its solver.
    """

    data: tuple[str, ...]
    overrides: str


CASES = {
    "lenet": Case(("make_digits.py",), "test_interval: 1000"),
    "resnet20": Case(
        ("make_synthetic.py", "data/cifar10", "--train", "10000", "--test", "2000"),
        "max_iter: 60 stepvalue: 45 stepvalue: 55 base_lr: 0.05 test_iter: 20 test_interval: 60 display: 20",
    ),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    explain(parser, __doc__)
    parser.add_argument("--nets", default=",".join(CASES), help="which, separated by commas (default: %(default)s)")
    parser.add_argument("--precision", default="BFLOAT16", help="beside FLOAT32 (default: %(default)s)")
    parser.add_argument("--seeds", type=int, default=3, help="how many (default: %(default)s)")


def run(arguments: argparse.Namespace) -> None:
    print(f"{'net':<10} {'seed':>4} {'FLOAT32 %':>10} {arguments.precision + ' %':>12} {'points':>7}", flush=True)
    for name in arguments.nets.split(","):
        with tempfile.TemporaryDirectory() as folder:
            make_data(CASES[name], Path(folder))
            found = []
            for seed in range(1, arguments.seeds + 1):
                pair = [accuracy(name, Path(folder), seed, each) for each in ("FLOAT32", arguments.precision)]
                found.append(pair)
                print(row(name, str(seed), *pair), flush=True)
            means = [fmean(column) for column in zip(*found, strict=True)]
            reached = "reached" if means[1] >= means[0] - GOAL else "missed"
            print(f"{row(name, 'mean', *means)}  goal: at most {GOAL:g} lost: {reached}", flush=True)


def row(name: str, seed: str, single: float, half: float) -> str:
    return f"{name:<10} {seed:>4} {single:>10.2f} {half:>12.2f} {half - single:>+7.2f}"


def make_data(case: Case, folder: Path) -> None:
    """Make what the net's text names, seen from ``folder``."""
    (folder / "prototxt").symlink_to(PROTOTXT)
    script, *words = case.data
    subprocess.run([sys.executable, str(SCRIPTS / script), *words], cwd=folder, check=True, stdout=subprocess.DEVNULL)


def accuracy(name: str, folder: Path, seed: int, precision: str) -> float:
    """In percent, of the test at the end of training."""
    case = CASES[name]
    more = f"{case.overrides} random_seed: {seed} precision: {precision} snapshot: 0 snapshot_after_train: false"
    words = ["train", "--solver", f"prototxt/{name}/solver.prototxt", "--set", more]
    done = subprocess.run(
        [sys.executable, "-m", "bpt", *words], cwd=folder, env=environment() | {"PYTHONPATH": str(ROOT)},
        stderr=subprocess.PIPE, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        raise JobError(reason(done.stderr))
    return 100 * float(re.findall(r"accuracy = ([\d.]+)", done.stderr)[-1])
