"""Every command in the tables of docs/papers.md, one behind the other: each paper's algorithms, tables and figures.

Each leaves what it has written (CSV files, figures, and what it has said, log.txt) in a folder of its own below that of
--output; papers.csv there tells what each command is for, how long it took and what became of it. A command that
several rows name is run once.

--quick runs them as they stand in the tables, small: a quarter of an hour on two cores. Without it benches do the whole
of what they are for, which takes many hours. What will be run is told first.

At the end the papers' own numbers stand beside those found here: comparison.csv and comparison.md. What needs the
papers' machines (4 GPUs, 8 GPUs, 16 replicas, 30 nodes) is forecast, and marked so. --compare does this alone, for the
results that are already in --output; --page puts the tables into docs/reproduce.md, too.

Digits are scikit-learn's, and images are made by a formula where data/ has neither MNIST nor CIFAR-10. What needs
unlike ranks takes Linux, root and cgroups, and what needs unlike hosts the test bed; without these it is left out, as
the table says. The exit status is 1 if a command has failed.
"""

from __future__ import annotations

import argparse
import os
import re
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tqdm import tqdm

from bpt.base.errors import RunError
from scripts.benches.harness.arguments import add_output, explain
from scripts.benches.harness.launch import ROOT, call, environment, reason
from scripts.benches.harness.panels import check_matplotlib
from scripts.benches.harness.tables import write_rows
from scripts.benches.harness.testbed import end_by_signals
from scripts.benches.papers.commands import Command, commands, full_commands, rows
from scripts.benches.papers.comparison import PAPERS, compare, page, write_page
from scripts.testbeds import cgroups

HELP = "every command of docs/papers.md: all tables and figures of the papers, in one folder"
OUT = ROOT / "bench" / "papers"
DIGITS, BRAINS = ROOT / "data" / "digits", ROOT / "data" / "brains"
THERE = ("prototxt", "scripts", "tools", "data")  # where commands look for files
RESULTS = OK, FAILED, LEFT_OUT = "ok", "FAILED", "left out"
UNLIKE = ("balance",)  # benches whose ranks are in cgroups, and so are with --quick
ON_HOSTS = (*UNLIKE, "bptcnn", "hybrid")  # benches on unlike ranks or hosts
ROOTLESS = ("--quick", "--full", "--dry-run", "--rivals")  # with these none of the others wants root
TIMEOUT = {True: 600.0, False: 86400.0}  # seconds of a command, quick or not
PATIENCE = 20.0  # seconds, for a launcher to end its ranks


@dataclass(frozen=True)
class Outcome:
    """What became of a command.

    Attributes:
        result: of RESULTS.
        why: in a line; empty if it is OK.
        seconds: by the clock.
        busy: of all processors.
        files: that it has left, in the folder of that number.
    """

    number: int
    command: Command
    result: str
    why: str = ""
    seconds: float = 0.0
    busy: float = 0.0
    files: Sequence[str] = ()

    @property
    def status(self) -> str:
        return f"{self.result}: {self.why}" if self.why else self.result


def add_arguments(parser: argparse.ArgumentParser) -> None:
    explain(parser, __doc__)
    parser.add_argument("--quick", action="store_true", help="small, as the tables have it")
    help = "only commands with this in their text, or of papers whose name begins so; may be given more than once"
    parser.add_argument("--only", action="append", default=[], metavar="TEXT", help=help)
    parser.add_argument("--compare", action="store_true", help="run nothing: compare the results that are there")
    parser.add_argument("--page", action="store_true", help="write the comparison into docs/reproduce.md, too")
    add_output(parser, OUT, "results")


def run(arguments: argparse.Namespace) -> None:
    if arguments.compare:
        tell_comparison(arguments)
        return
    end_by_signals()
    check_matplotlib()
    chosen = commands(rows())
    if not arguments.quick:
        chosen = full_commands(chosen)
    numbered = [(n, command) for n, command in enumerate(chosen, 1) if wanted(command, arguments.only)]
    if not numbered:
        sys.exit(f"error: no command of docs/papers.md has {' or '.join(arguments.only)}")
    for number, command in numbered:
        print(f"{number:3} {command.text}")
    folder: Path = arguments.out.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    if not DIGITS.exists():
        call([sys.executable, str(ROOT / "scripts" / "make_digits.py"), str(DIGITS)])
    if not BRAINS.exists():
        call([sys.executable, str(ROOT / "scripts" / "make_brains.py"), "--out", str(BRAINS)])
    outcomes = []
    with tqdm(numbered, unit="command", disable=None, dynamic_ncols=True) as bar:
        for number, command in bar:
            bar.set_description(command.bench or command.of_program[1], refresh=True)
            outcomes.append(outcome := tried(number, command, folder, TIMEOUT[arguments.quick]))
            bar.write(f"{number:3} {outcome.seconds:6.1f} s  {outcome.status}", file=sys.stdout)
            write_summary(outcomes, folder / "papers.csv")
    for line in table(outcomes):
        print(line)
    print(f"In {folder}: papers.csv, and a folder for each command")
    tell_comparison(arguments)
    if any(outcome.result == FAILED for outcome in outcomes):
        sys.exit(1)


def tell_comparison(arguments: argparse.Namespace) -> None:
    """Compare the papers' values with those in the folder of results, and print the table.

    Of the papers that --only names, or of all; nothing is compared if it names commands alone.
    """
    named = [paper for paper in PAPERS.values() if any(paper.startswith(text) for text in arguments.only)]
    if arguments.only and not named:
        return
    compared = compare(arguments.out.resolve(), named)
    for line in page(compared):
        print(line)
    if arguments.page:
        write_page(compared)
    print(f"In {arguments.out.resolve()}: comparison.csv and comparison.md")


def wanted(command: Command, only: Sequence[str]) -> bool:
    """Whether it is one of those that --only has chosen."""
    papers = {row.paper for row in command.rows}
    return not only or any(text in command.text or any(name.startswith(text) for name in papers) for text in only)


def why_not(command: Command) -> str:
    """Why a command cannot be run on this machine, whatever it does; "": it can."""
    small = any(word in ROOTLESS for word in command.words)
    if command.bench not in (UNLIKE if small else ON_HOSTS):
        return ""
    if os.geteuid() != 0:
        return "unlike ranks take root"
    try:
        cgroups.find()
    except RunError as error:
        return str(error)
    return ""


def tried(number: int, command: Command, folder: Path, timeout: float) -> Outcome:
    """Run a command, in a folder of its own."""
    if why := why_not(command):
        return Outcome(number, command, LEFT_OUT, why)
    place = folder / name_of(number, command)
    shutil.rmtree(place, ignore_errors=True)  # of an earlier run
    place.mkdir()
    links = [place / name for name in THERE]
    for link in links:
        link.symlink_to(ROOT / link.name)
    start, before = time.monotonic(), _busy()
    try:
        for each in (*command.before, command):
            status = start_and_wait(each.argv(place), place, timeout)
            if status != 0:
                break
    finally:
        for link in links:
            link.unlink()
    seconds, busy = time.monotonic() - start, _busy() - before
    result, why = OK, ""
    if status != 0:
        said = (place / "log.txt").read_text(errors="replace")
        why = f"not done after {timeout:g} s" if status is None else reason(said) or f"exit status {status}"
        result = FAILED
    return Outcome(number, command, result, why, seconds, busy, sorted(files_in(place)))


def start_and_wait(argv: Sequence[str], place: Path, timeout: float) -> int | None:
    """The exit status of a program in ``place``; ``None``: it was not done in time. It is not left running."""
    paths = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    with (place / "log.txt").open("a") as log:
        program = subprocess.Popen(
            argv, cwd=place, env=environment() | {"PYTHONPATH": paths}, stdin=subprocess.DEVNULL, stdout=log,
            stderr=subprocess.STDOUT,
        )  # fmt: skip
        try:
            return program.wait(timeout)
        except subprocess.TimeoutExpired:
            return None
        finally:
            if program.poll() is None:
                program.send_signal(signal.SIGTERM)  # so that a launcher ends its ranks, and a test bed is taken down
                try:
                    program.wait(PATIENCE)
                except subprocess.TimeoutExpired:
                    program.kill()
                    program.wait()


def _busy() -> float:
    """Seconds of processors, of all programs that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def name_of(number: int, command: Command) -> str:
    """Of its folder: ``09_bpt_train_lenet_AGWU``, say."""
    words = command.of_program
    words = [command.bench, *words[2:]] if command.bench else words
    parts = re.findall(r"[A-Za-z]\w*", " ".join(words[1:]).replace("prototxt", ""))
    told = [part for part in dict.fromkeys(parts) if part not in ("solver", "set", "parallel_param", "model")]
    return "_".join([f"{number:02}", Path(words[0]).stem, *told])[:60].rstrip("_")


def files_in(place: Path) -> Iterator[str]:
    """The files below, without the log."""
    for path in place.rglob("*"):
        if path.is_file() and path.name != "log.txt":
            yield str(path.relative_to(place))


def write_summary(outcomes: Sequence[Outcome], path: Path) -> None:
    """papers.csv: a row for each row of the papers' tables that a command shows."""
    head = ("paper", "in the paper", "command", "status", "seconds", "processor seconds", "folder", "files")
    found = (
        (
            row.paper, row.cells[0], outcome.command.text, outcome.status, f"{outcome.seconds:.1f}",
            f"{outcome.busy:.1f}", name_of(outcome.number, outcome.command), " ".join(outcome.files),
        )
        for outcome in outcomes for row in outcome.command.rows
    )  # fmt: skip
    write_rows(path, head, found)


def table(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """A line a command, and their sum."""
    yield f"{'':>3} {'seconds':>7} {'busy':>7}  {'status':<9} {'files':<24} command"
    for each in outcomes:
        yield (
            f"{each.number:3} {each.seconds:7.1f} {each.busy:7.1f}  {each.result:<9} {kinds(each.files):<24} "
            f"{shlex.join(each.command.words)}"
        )
        if each.why:
            yield f"{'':21}{each.why}"
    counts = Counter(each.result for each in outcomes)
    told = ", ".join(f"{counts[result]} {result}" for result in RESULTS if counts[result])
    seconds, busy = (sum(getattr(each, name) for each in outcomes) for name in ("seconds", "busy"))
    yield f"{'':>3} {seconds:7.1f} {busy:7.1f}  {len(outcomes)} commands: {told}"


def kinds(files: Sequence[str]) -> str:
    """``3 csv, 2 png``: the most frequent first."""
    counts = Counter(Path(name).suffix[1:] or "others" for name in files)
    return ", ".join(f"{number} {kind}" for kind, number in counts.most_common(3))
