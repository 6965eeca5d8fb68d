"""``bpt train`` on a terminal: life from the start, a live block, a log that is whole, and a summary at the end."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from bpt.apps.plot.training_log import read_log
from bpt.base.version import VERSION
from tests.support.halving_net import NET, SOLVER
from tests.support.marks import slow
from tests.support.paths import ROOT
from tests.support.pseudo_terminal import ProgramOnTerminal, screen

# Reports when torch is looked for, which takes seconds from then on.
PROGRAM = """
import os, sys

class Watch:
    def find_spec(self, name, path=None, target=None):
        if name == "torch":
            os.write(2, b"<torch>\\n")

sys.meta_path.insert(0, Watch())
from bpt.cli.main import main
sys.exit(main())
"""
MORE = 'test_interval: 2 test_initialization: true snapshot_prefix: "out/one"'
TEST = ["bpt", "test", "--model", "net.prototxt", "--weights", "out/one_iter_4.caffemodel", "--iterations", "1"]
HEAD = f"bpt {VERSION}: training by solver.prototxt"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path) -> Path:
    (tmp_path / "net.prototxt").write_text(NET)
    (tmp_path / "solver.prototxt").write_text(SOLVER)
    return tmp_path


def start(folder: Path, *words: str, **environment: str) -> ProgramOnTerminal:
    """``bpt`` on a terminal of its own, without settings of the caller's."""
    own = {name: value for name, value in os.environ.items() if not name.startswith(("GLOG_", "JPY_"))}
    own |= {"TERM": "xterm", "PYTHONPATH": str(ROOT)} | environment
    return ProgramOnTerminal([sys.executable, "-c", PROGRAM, *words], folder, own)


def train(folder: Path, *words: str, **environment: str) -> ProgramOnTerminal:
    return start(folder, "train", "--solver", "solver.prototxt", "--set", MORE, *words, **environment)


def log_of(folder: Path) -> Path:
    (path,) = (folder / "out").glob("one_*.log")
    return path


def without_warnings(text: str) -> list[str]:
    """What stands on the screen; a busy host may be warned of."""
    return [line for line in screen(text.replace("<torch>\n", "")) if not line.startswith(("warning: ", "<torch>"))]


def test_from_the_start_to_the_summary(folder: Path) -> None:
    run = train(folder)
    run.wait_for("<torch>")
    assert run.text.startswith(HEAD)  # before the libraries are loaded
    run.wait_for("starting · one process · ")
    assert run.end() == 0
    log = log_of(folder)
    shown = without_warnings(run.text)
    assert shown[0] == HEAD
    assert shown[1].startswith("one: trained 4 iterations, in 0:0")
    assert [line.split() for line in shown[2:]] == [
        # Half the square of the weight, which each iteration halves.
        ["best", "loss", "0.001953", "at", "iteration", "4"],
        ["snapshot", "out/one_iter_4.caffemodel"],
        ["log", f"out/{log.name}"],
        ["next", *TEST],
        [],
    ]


def test_the_log_is_whole_and_in_caffes_lines(folder: Path) -> None:
    assert train(folder, TERM="vt100").end() == 0
    log = read_log(str(log_of(folder)))
    assert [row.iteration for row in log.train] == [0, 2]
    assert [row.iteration for row in log.test] == [0, 2, 4]
    text = log_of(folder).read_text()
    assert "] Optimization Done.\n" in text
    assert "\x1b" not in text


@pytest.mark.slow
def test_asynchronous_workers(inputs: Path) -> None:
    """Their server tests and writes."""
    more = 'parallel_param { exchange: AGWU } snapshot_prefix: "out/lenet"'
    run = start(inputs, "train", "--solver", "solver.prototxt", "--set", more)
    assert run.end() == 0
    assert "] 60 of 60 · 100 %" in run.text
    shown = without_warnings(run.text)
    assert shown[1].startswith("LeNetTiny: trained 60 iterations, in 0:0")
    assert shown[2].startswith("  best accuracy  0.")
    assert shown[3].split() == ["snapshot", "out/lenet_iter_60.caffemodel"]


def test_ctrl_c_leaves_a_clean_screen_and_the_way_to_continue(folder: Path) -> None:
    run = train(folder, "--set", "max_iter: 100000000", "--log", "train.log")
    run.wait_for(" left")  # the pace is known, so it trains
    run.type("\x03")
    assert run.end() == 0
    shown = without_warnings(run.text)
    assert shown[0] == HEAD
    (place,) = [number for number, line in enumerate(shown) if " of 100000000, in 0:" in line]
    assert place <= 3  # a slow machine may leave a line or two of the block above, which the typed key has moved
    assert shown[-2].split()[:6] == ["next", "bpt", "train", "--solver", "solver.prototxt", "--snapshot"]
    assert shown[-1] == ""
    assert "Optimization stopped early." in (folder / "train.log").read_text()
    assert not list((folder / "out").glob("*.log"))


def test_a_mistake_leaves_one_line_and_no_log(folder: Path) -> None:
    (folder / "net.prototxt").write_text(NET.replace("EuclideanLoss", "EuclideanLos"))
    run = train(folder)
    assert run.end() == 2
    head, error, _ = without_warnings(run.text)
    assert head == HEAD
    assert error.startswith("error: net.prototxt:7:")
    assert not list((folder / "out").iterdir())


def test_the_log_has_the_error_of_a_run_that_failed(folder: Path) -> None:
    run = train(folder, "--log", "train.log", "--set", "base_lr: 1e30 max_iter: 100")
    assert run.end() == 1
    [line] = [line for line in screen(run.text) if line.startswith("error: ")]
    assert (folder / "train.log").read_text().splitlines()[-1].endswith(f"] {line.removeprefix('error: ')}")


@pytest.mark.slow
def test_a_device_that_is_not_there_leaves_no_log(folder: Path) -> None:
    run = train(folder, "--gpu", "77")
    assert run.end() == 2
    assert "error: --gpu 77: " in run.text
    assert not list((folder / "out").iterdir())


@pytest.mark.parametrize("wanted", ["--log=-", slow("--logtostderr"), slow("TERM=dumb")])
def test_who_wants_the_log_on_the_terminal_gets_it_as_before(wanted: str, folder: Path) -> None:
    run = train(folder, TERM="dumb") if "TERM" in wanted else train(folder, wanted)
    assert run.end() == 0
    assert HEAD not in run.text
    assert "] Iteration 4, loss = 0.00195312" in run.text
    assert "\x1b[J" not in run.text
    assert not list((folder / "out").glob("*.log"))


def test_a_pipe_gets_the_log_also_beside_a_file(folder: Path) -> None:
    words = [sys.executable, "-m", "bpt", "train", "--solver", "solver.prototxt", "--set", MORE, "--log", "train.log"]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "TERM": "xterm"}
    first, second = (
        subprocess.run([*words, *more], cwd=folder, env=environment, capture_output=True, text=True, check=True)
        for more in ([], ["--snapshot", "auto", "--set", "max_iter: 6"])
    )
    assert all(re.match(r"[IW]\d{4} ", text.stderr) for text in (first, second))
    assert first.stderr.endswith("] Optimization Done.\n")
    assert (first.stdout, second.stdout) == ("", "")
    assert (folder / "train.log").read_text() == first.stderr + second.stderr  # what continues a run, continues its log


@pytest.mark.slow
def test_a_log_that_cannot_be_written(folder: Path) -> None:
    run = train(folder, "--log", "none/train.log")
    assert run.end() == 2
    assert "error: none/train.log: the log cannot be written there: No such file or directory; name another" in run.text
