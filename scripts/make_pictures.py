#!/usr/bin/env python3
"""Makes the pictures of the guides anew, in docs/pictures/: what bpt's own commands draw of LeNet and GoogLeNet.

    .venv/bin/python scripts/make_pictures.py               # all, in some minutes on two cores
    .venv/bin/python scripts/make_pictures.py trace.png     # those that are named

LeNet is trained on scikit-learn's digits for them, in a temporary folder; for the trace on four ranks under mpirun.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from PIL import Image

from bpt.data.lmdb_file import LmdbSource
from bpt.system.comm.launch import find_mpirun
from bpt.train.outer.report.style import new_figure, save

ROOT = Path(__file__).resolve().parents[1]
PICTURES = ROOT / "docs" / "pictures"
ABOUT = "Make the pictures of the guides anew."
SOLVER = "prototxt/lenet/solver.prototxt"
DIGIT = 7  # of the test set, explained by Grad-CAM: a 5
ITERATIONS = 500
RANKS = 4
LARGE = 100_000  # bytes of a picture
COLOURS = {"F": "#4c78a8", "B": "#f58518", "X": "#e45756", "W": "#bab0ac", "U": "#54a24b"}
MEANING = {"F": "forward", "B": "backward", "X": "exchange begins", "W": "waits for it", "U": "update"}
TRACED = range(10, 13)  # iterations, of which the trace is shown


def bpt(*arguments: str, ranks: int = 1, log: Path | None = None) -> None:
    """Runs a command of bpt in the current folder.

    Raises:
        SystemExit: it failed; the end of its log is told.
    """
    command = [sys.executable, "-m", "bpt", *arguments]
    if ranks > 1:
        command = [find_mpirun() or "mpirun", "-n", str(ranks), "--oversubscribe", *command]
    own = {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1")}
    if os.geteuid() == 0:  # Open MPI wants to be told twice
        own |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    done = subprocess.run(command, env={**os.environ, **own}, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(arguments)}: status {done.returncode}\n{done.stderr[-2000:]}")
    if log:
        log.write_text(done.stderr)


def net(picture: Path) -> None:
    """LeNet, as ``bpt draw`` draws it."""
    bpt("draw", "--model", "prototxt/lenet/train_val.prototxt", "--output", str(picture), "--rankdir", "LR")


def curve(picture: Path) -> None:
    """Loss and accuracy of LeNet, as ``bpt plot`` draws its log."""
    bpt("plot", "--log", str(trained()), "--output", str(picture))


def placement(picture: Path) -> None:
    """GoogLeNet on four unlike devices, as ``bpt plan`` draws it."""
    bpt("plan", "--solver", "prototxt/googlenet/solver.prototxt", "--shape", "3x224x224", "--devices",
        "prototxt/clusters/eight_unlike.prototxt", "--figure", str(picture),
        "--set", "parallel_param { pipeline_param { micro_batches: 8 } }")  # fmt: skip


def cam(picture: Path) -> None:
    """Where LeNet has looked at a digit, as ``bpt explain`` draws it."""
    trained()
    sample = LmdbSource("data/digits/test_lmdb").read(DIGIT)
    Image.fromarray(sample.image[0]).save("digit.png")
    bpt("explain", "--model", "prototxt/lenet/deploy.prototxt", "--weights",
        f"snapshots/lenet/lenet_iter_{ITERATIONS}.caffemodel", "--input", "digit.png", "--scale", "0.00390625",
        "--output", str(picture.with_suffix("")))  # fmt: skip


def trace(picture: Path) -> None:
    """Some iterations of LeNet on four ranks, from the file that ``--trace`` writes."""
    file = Path("trace.json")
    bpt("train", "--solver", SOLVER, "--trace", str(file), "--set",
        f"max_iter: {TRACED.stop + 5} test_initialization: false snapshot_after_train: false", ranks=RANKS)  # fmt: skip
    draw_trace(json.loads(file.read_text())["traceEvents"], picture)


def draw_trace(events: list[dict[str, Any]], picture: Path) -> None:
    """What ranks compute in the iterations ``TRACED`` of a Chrome trace: a row for each rank, a bar for each step."""
    events = [event for event in events if event["ph"] == "X"]
    bars = [event for event in events if event["cat"] == "compute" and event["name"][0] in COLOURS]
    begins = sorted(event["ts"] for event in bars if event["name"].startswith("F") and event["pid"] == 0)
    first, last = begins[TRACED.start], begins[TRACED.stop]
    figure, (axes, *_) = new_figure(f"LeNet on {RANKS} ranks: {len(TRACED)} iterations of a trace", height=2.4)
    for letter, colour in COLOURS.items():
        shown = [event for event in bars if event["name"][0] == letter]
        axes.barh(
            [event["pid"] for event in shown],
            [event["dur"] / 1e3 for event in shown],
            left=[(event["ts"] - first) / 1e3 for event in shown],
            color=colour,
            label=f"{letter}: {MEANING[letter]}",
        )
    axes.set(xlim=(0, (last - first) / 1e3), xlabel="ms", yticks=range(RANKS), ylabel="rank")
    axes.invert_yaxis()
    figure.legend(
        loc="outside lower center", ncols=len(COLOURS), frameon=False, fontsize="small", columnspacing=1, handlelength=1
    )
    save(figure, picture)


def trained() -> Path:
    """Trains LeNet, once, and returns its log; its weights are where its solver says."""
    log = Path("train.log")
    if not log.exists():
        bpt("train", "--solver", SOLVER, "--set", f"max_iter: {ITERATIONS} display: 10 random_seed: 1", log=log)
    return log


def shrink(picture: Path) -> None:
    """Keeps 256 colours of a PNG file: a third of its size."""
    Image.open(picture).convert("RGB").quantize().save(picture, optimize=True)


DRAWINGS: dict[str, Callable[[Path], None]] = {
    "lenet.svg": net, "curve.svg": curve, "trace.png": trace, "placement.png": placement, "cam.png": cam,
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=ABOUT)
    parser.add_argument("pictures", nargs="*", metavar="PICTURE", help=f"of {', '.join(DRAWINGS)} (default: all)")
    names = parser.parse_args().pictures or list(DRAWINGS)
    if unknown := [name for name in names if name not in DRAWINGS]:
        parser.error(f'no picture "{unknown[0]}"; there are {", ".join(DRAWINGS)}')
    PICTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        Path("prototxt").symlink_to(ROOT / "prototxt")
        digits = [sys.executable, str(ROOT / "scripts" / "make_digits.py")]
        subprocess.run(digits, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, check=True)
        for name in names:
            DRAWINGS[name](PICTURES / name)
            if name.endswith(".png") and (PICTURES / name).stat().st_size > LARGE:
                shrink(PICTURES / name)
            print(f"docs/pictures/{name}: {(PICTURES / name).stat().st_size / 1e3:.0f} kB", flush=True)
        os.chdir(ROOT)


if __name__ == "__main__":
    main()
