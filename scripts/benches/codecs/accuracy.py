"""What codecs cost in accuracy: nets trained on 2 ranks from the same seeds, with each codec and without."""

from __future__ import annotations

import csv
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean

from bpt.base.log import columns
from scripts.benches.harness.launch import PROTOTXT, ROOT, JobError, environment, mpirun, reason
from scripts.benches.harness.tables import append_rows

GOAL = 0.5  # points
RANKS = 2
CODECS: Mapping[str, str] = {
    "NONE": "codec: NONE",
    "BF16": "codec: BF16",
    "FP16": "codec: FP16",
    "TOPK": "codec: TOPK ratio: 0.05",
    "POWERSGD": "codec: POWERSGD rank: 4 warm_up: 20",
}
MEAN = ("tools/compute_image_mean.py", "data/cifar10/train_lmdb", "data/cifar10/mean.binaryproto")
NETS: Mapping[str, tuple[Sequence[Sequence[str]], str]] = {
    "lenet": ([("scripts/make_digits.py",)], "test_interval: 1000 display: 0"),
    "cifar10_quick": (
        [("scripts/make_synthetic.py", "data/cifar10", "--train", "5000", "--test", "2000"), MEAN],
        "max_iter: 160 test_iter: 20 test_interval: 160 display: 0",
    ),
}
"""The scripts that make a net's images, with their arguments; what its solver says otherwise."""

HEAD = ("net", "codec", "seed", "accuracy")
Key = tuple[str, str, int]


def measure(path: Path, codecs: Sequence[str], seeds: int) -> bool:
    """Train what ``path`` does not have, and print the table; whether each codec loses no more than the goal."""
    codecs = list(dict.fromkeys(["NONE", *codecs]))
    for net, (data, overrides) in NETS.items():
        known = read(path)
        missing = [(codec, seed) for seed in range(1, seeds + 1) for codec in codecs if (net, codec, seed) not in known]
        if not missing:
            continue
        with tempfile.TemporaryDirectory() as folder:
            make_data(data, Path(folder))
            for codec, seed in missing:
                reached = _train(net, Path(folder), f"{overrides} random_seed: {seed}", CODECS[codec])
                append_rows(path, HEAD, [(net, codec, seed, reached)])
                print(f"{net}, {codec}, seed {seed}: {reached:.2f} %", file=sys.stderr, flush=True)
    found = read(path)
    print(*table(found), sep="\n")
    return not any(lost > GOAL for _, _, lost in means(found))


def read(path: Path) -> dict[Key, float]:
    """Accuracies in percent."""
    if not path.exists():
        return {}
    with path.open(newline="") as file:
        return {(row["net"], row["codec"], int(row["seed"])): float(row["accuracy"]) for row in csv.DictReader(file)}


def means(found: Mapping[Key, float]) -> Iterator[tuple[str, str, float]]:
    """Of each net and codec the points that are lost in the mean over the seeds that both have."""
    for net, codec in dict.fromkeys((net, codec) for net, codec, _ in found):
        pairs = [
            (found[net, "NONE", seed], value)
            for (of, by, seed), value in found.items()
            if (of, by) == (net, codec) and (net, "NONE", seed) in found
        ]
        if codec != "NONE" and pairs:
            yield net, codec, fmean(none - own for none, own in pairs)


def table(found: Mapping[Key, float]) -> Iterator[str]:
    """A line a net and codec."""
    lost = {(net, codec): points for net, codec, points in means(found)}
    seeds = sorted({seed for *_, seed in found})
    rows = [["net", "codec", *(f"seed {seed} %" for seed in seeds), "points lost", f"goal {GOAL:g}"]]
    for net, codec in dict.fromkeys((net, codec) for net, codec, _ in found):
        values = [f"{found[net, codec, seed]:.2f}" if (net, codec, seed) in found else "" for seed in seeds]
        points = lost.get((net, codec))
        told = ["", ""] if points is None else [f"{points:+.2f}", "MISSED" if points > GOAL else "reached"]
        rows.append([net, codec, *values, *told])
    yield from columns(rows, left=2)


def make_data(scripts: Sequence[Sequence[str]], folder: Path) -> None:
    """Make what the net's text names, seen from ``folder``."""
    (folder / "prototxt").symlink_to(PROTOTXT)
    for name, *words in scripts:
        command = [sys.executable, str(ROOT / name), *words]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, env=_environment())
        if done.returncode:
            raise JobError(reason(done.stderr))


def _environment() -> dict[str, str]:
    return environment(1) | {"PYTHONPATH": str(ROOT)}


def _train(net: str, folder: Path, overrides: str, codec: str) -> float:
    """Accuracy in percent, of the test at the end of training."""
    parallel = f"parallel_param {{ compression_param {{ {codec} links: ALL }} }}"
    more = f"{overrides} snapshot: 0 snapshot_after_train: false {parallel}"
    words = ["train", "--solver", f"prototxt/{net}/solver.prototxt", "--set", more]
    done = subprocess.run(
        [*mpirun(RANKS), sys.executable, "-m", "bpt", *words], cwd=folder, stderr=subprocess.PIPE, text=True,
        check=False, env=_environment(), stdin=subprocess.DEVNULL,
    )  # fmt: skip
    if done.returncode:
        raise JobError(reason(done.stderr))
    return 100 * float(re.findall(r"accuracy = ([\d.]+)", done.stderr)[-1])
