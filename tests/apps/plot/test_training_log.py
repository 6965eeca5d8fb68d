"""Logs of training as rows."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from bpt.apps.plot.training_log import parse_log, read_log, table
from bpt.base.errors import FileError
from tests.support.paths import GOLDEN

LOG = """\
I1231 23:59:58.500000 7 solver.py:1] Solving Net
I1231 23:59:59.000000 7 solver.py:1] Iteration 0, Testing net (#0)
I1231 23:59:59.250000 7 solver.py:1]     Test net output #0: accuracy = 0.5
I1231 23:59:59.250000 7 solver.py:1]     Test net output #1: loss = 2 (* 1 = 2 loss)
I1231 23:59:59.500000 7 solver.py:1] Iteration 0, Testing net (#1)
I1231 23:59:59.500000 7 solver.py:1]     Test net output #0: accuracy = 0.25
I0101 00:00:01.000000 7 solver.py:1] Iteration 0 (1e-05 iter/s, 1s/1 iters), loss = 2.5
I0101 00:00:01.000000 7 solver.py:1]     Train net output #0: p = 1
I0101 00:00:01.000000 7 solver.py:1]     Train net output #1: p = 3
I0101 00:00:01.000000 7 solver.py:1] Iteration 0, lr = 1e-05
a line of somebody else
I0101 00:00:02.000000 7 solver.py:1] Iteration 5 (1 iter/s, 1s/1 iters), loss = nan
I0101 00:00:02.000000 7 solver.py:1]     Train net output #0: p = -inf
"""


def test_a_log_by_hand() -> None:
    log = parse_log(LOG.splitlines(), "net.log")
    assert log.name == "net"
    [test] = log.test
    assert (test.iteration, test.seconds, test.rate) == (0, 0.75, 1e-5)
    assert test.values == {"accuracy": 0.5, "loss": 2.0, "#1:accuracy": 0.25}
    first, second = log.train
    assert (first.seconds, first.rate, first.values) == (2.5, 1e-5, {"p": 1.0, "p[1]": 3.0})  # over New Year's Eve
    assert (second.iteration, second.values) == (5, {"p": -math.inf})
    assert log.losses[0].values["loss"] == 2.5
    assert math.isnan(log.losses[1].values["loss"])
    assert math.isnan(log.losses[1].rate)  # not shown for iteration 5
    assert log.weighted == {"loss"}


def test_a_run_that_goes_on_in_the_same_log() -> None:
    """The iteration of the snapshot is there twice, after the tests of two nets."""
    again = LOG.replace("p = 1", "p = 8").replace("loss = 2 (", "loss = 9 (")
    log = parse_log([*LOG.splitlines()[:10], *again.splitlines()[:10]])
    assert [row.values for row in log.train] == [{"p": 1.0, "p[1]": 3.0}, {"p": 8.0, "p[1]": 3.0}]
    assert [row.values["loss"] for row in log.test] == [2.0, 9.0]
    assert all(row.values["#1:accuracy"] == 0.25 for row in log.test)


def test_a_cell_that_is_not_there_is_empty() -> None:
    assert table(parse_log(LOG.splitlines()).train) == [
        ["NumIters", "Seconds", "LearningRate", "p", "p[1]"],
        ["0.0", "2.5", "1e-05", "1.0", "3.0"],
        ["5.0", "3.5", "1e-05", "-inf", ""],
    ]


@pytest.mark.parametrize(
    "name", ["train_random_init", "train_resume_snapshot", "train_sigint", "train_opts_h5_avgloss"]
)
def test_caffes_logs(name: str) -> None:
    """Each number that a line shows is in a row."""
    path = GOLDEN / "cli" / f"{name}.stderr.txt"
    log = read_log(str(path))
    for word, rows in (("Train", log.train), ("Test", log.test)):
        shown = [float(line.split(" = ")[1].split()[0]) for line in path.read_text().splitlines()
                 if f"{word} net output" in line]  # fmt: skip
        assert [value for row in rows for value in row.values.values()] == shown
    shown = [float(line.rsplit(" = ", 1)[1]) for line in path.read_text().splitlines() if ", loss = " in line]
    assert [row.values["loss"] for row in log.losses] == shown
    assert all(row.seconds >= 0 for row in (*log.train, *log.test))


def test_what_is_no_log(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"\xff\xfe nothing\n")
    with pytest.raises(FileError, match=r"a\.txt: is no log of training"):
        read_log(str(tmp_path / "a.txt"))
    with pytest.raises(FileError, match="no such file"):
        read_log(str(tmp_path / "b.txt"))
