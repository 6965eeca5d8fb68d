"""Signals during ``bpt train``: what stops, what is written, how it exits.

In a process of its own where that matters; else a filter of the log raises the signal at a given line.
"""

from __future__ import annotations

import logging
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bpt.train import state as snapshot
from tests.support.commands import Bpt

BPT = (sys.executable, "-m", "bpt")
TRAIN = ("train", "--solver=solver_long.prototxt", "--weights=init.caffemodel")  # max_iter: 100000, display: 10
FIRST = "Iteration 0 ("
RaiseAt = Callable[[str, signal.Signals], None]


class Running:
    """A ``bpt`` that runs; its log is read as it comes, and it is killed should it hang."""

    def __init__(self, *words: str) -> None:
        self._process = subprocess.Popen([*BPT, *words], stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._watchdog = threading.Timer(180, self._process.kill)
        self._watchdog.start()
        self.log = ""
        self.signal = self._process.send_signal

    def wait_for(self, text: str) -> None:
        """Read on until a line holds ``text``."""
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self.log += line
            if text in line:
                return
        pytest.fail(f"{text!r} did not come:\n{self.log}")

    def end(self) -> int:
        """Read the rest; the exit status."""
        with self._process as process:
            assert process.stderr is not None and process.stdout is not None
            self.log += process.stderr.read()
            assert process.stdout.read() == ""
        self._watchdog.cancel()
        assert "Traceback" not in self.log
        return process.returncode


def snapshots(folder: Path) -> list[int]:
    """Iterations of the snapshots in ``folder``; each must have both files."""
    files = sorted(path.name for path in folder.glob("lenet_sig_iter_*"))
    numbers = sorted({int(re.findall(r"\d+", name)[0]) for name in files})
    kinds = ("caffemodel", "solverstate")
    assert files == sorted(f"lenet_sig_iter_{number}.{kind}" for number in numbers for kind in kinds)
    return numbers


def test_in_a_process_of_its_own(inputs: Path) -> None:
    """SIGHUP writes a snapshot and goes on, Ctrl-C writes one and stops."""
    run = Running(*TRAIN)
    run.wait_for(FIRST)
    run.signal(signal.SIGHUP)
    run.wait_for("Snapshotting solver state")
    run.wait_for("lr = ")
    run.signal(signal.SIGINT)
    run.wait_for("Optimization stopped early.")
    run.signal(signal.SIGINT)  # the end of the interpreter bears impatience, too
    assert run.end() == 0
    assert run.log.endswith("Optimization stopped early.\n")
    assert len(snapshots(inputs)) == 2
    assert "Optimization Done." not in run.log


@pytest.fixture
def raise_at() -> Iterator[RaiseAt]:
    """A function that has a signal raised when a log line begins so, for the first time."""
    logger, filters = logging.getLogger("bpt"), []

    def plan(text: str, number: signal.Signals) -> None:
        pending = [number]

        def look(record: logging.LogRecord) -> bool:
            if pending and record.getMessage().startswith(text):
                signal.raise_signal(pending.pop())
            return True

        filters.append(look)
        logger.addFilter(look)

    yield plan
    for look in filters:
        logger.removeFilter(look)


def test_ctrl_c_before_training_starts(bpt: Bpt, inputs: Path, raise_at: RaiseAt) -> None:
    raise_at("Creating test net", signal.SIGINT)
    outcome = bpt(*TRAIN)
    assert (outcome.status, outcome.error) == (1, "interrupted")
    assert snapshots(inputs) == []


SHORT = (*TRAIN, "--set=max_iter: 21 test_interval: 5")


@pytest.mark.parametrize(
    ("flags", "number", "written", "last"),
    [
        ([], signal.SIGINT, [1], "Optimization stopped early."),
        (["--sigint_effect=stop"], signal.SIGINT, [1], "Optimization stopped early."),
        (["--sigint_effect=snapshot"], signal.SIGINT, [1, 21], "Optimization Done."),
        (["-sigint_effect", "none"], signal.SIGINT, [21], "Optimization Done."),
        ([], signal.SIGHUP, [1, 21], "Optimization Done."),
        (["--sighup_effect=stop"], signal.SIGHUP, [1], "Optimization stopped early."),
        (["--sighup_effect=none"], signal.SIGHUP, [21], "Optimization Done."),
        (["--sigint_effect=none", "--sighup_effect=none"], signal.SIGTERM, [1], "; wrote lenet_sig_iter_1.solverstate"),
        (["--set=snapshot_after_train: false"], signal.SIGINT, [], "Optimization stopped early."),
        (["--set=snapshot_after_train: false"], signal.SIGTERM, [], "error: stopped by SIGTERM after 1 iterations\n"),
    ],
)
def test_effects(
    flags: list[str], number: signal.Signals, written: list[int], last: str, bpt: Bpt, inputs: Path, raise_at: RaiseAt
) -> None:
    raise_at(FIRST, number)
    outcome = bpt(*SHORT, *flags)
    assert outcome.status == (number == signal.SIGTERM)
    assert snapshots(inputs) == written
    assert last in outcome.err.splitlines(keepends=True)[-1]


def test_during_a_test_that_is_given_up(bpt: Bpt, inputs: Path, raise_at: RaiseAt) -> None:
    raise_at("Iteration 5, Testing net", signal.SIGINT)
    outcome = bpt(*SHORT)
    assert outcome.status == 0
    assert "] Test interrupted." in outcome.err
    assert snapshots(inputs) == [5]
    assert outcome.err.endswith("Optimization stopped early.\n")


def test_a_snapshot_during_a_test_that_goes_on(bpt: Bpt, inputs: Path, raise_at: RaiseAt) -> None:
    raise_at("Iteration 5, Testing net", signal.SIGHUP)
    log = bpt(*SHORT).err
    assert snapshots(inputs) == [5, 21]
    assert log.count("Test net output #0") == 5  # at iterations 0, 5, 10, 15 and 20


@pytest.mark.parametrize("again", ["Snapshotting to", "Snapshotting solver state", "Optimization stopped early."])
def test_impatience_spoils_nothing(again: str, bpt: Bpt, inputs: Path, raise_at: RaiseAt) -> None:
    raise_at(FIRST, signal.SIGINT)
    raise_at(again, signal.SIGINT)
    outcome = bpt(*SHORT)
    assert (outcome.status, snapshots(inputs)) == (0, [1])
    assert outcome.err.endswith("Optimization stopped early.\n")
    assert snapshot.find_newest("lenet_sig") == "lenet_sig_iter_1.solverstate"


def test_a_signal_that_comes_twice_asks_once(bpt: Bpt, inputs: Path, raise_at: RaiseAt) -> None:
    raise_at(FIRST, signal.SIGHUP)
    raise_at("Iteration 0, lr", signal.SIGHUP)
    bpt(*SHORT)
    assert snapshots(inputs) == [1, 21]


def test_signals_have_their_usual_effect_afterwards(bpt: Bpt, inputs: Path) -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM)]
    bpt(*SHORT)
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM)] == before


@pytest.mark.usefixtures("inputs")
def test_ctrl_c_in_other_commands(bpt: Bpt, raise_at: RaiseAt) -> None:
    raise_at("Running for", signal.SIGINT)
    outcome = bpt("test", "--model=lenet_train_test.prototxt", "--weights=init.caffemodel")
    assert (outcome.status, outcome.error) == (1, "interrupted")
