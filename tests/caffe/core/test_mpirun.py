"""``bpt.launch``: what it starts, what it gives back, and how a job's mistake becomes an error here."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

import bpt
from bpt.base.errors import PrototxtError, RunError, UserError
from bpt.caffe.core import mpirun
from tests.caffe.core.history_solver import NET, SOLVER
from tests.support.pycaffe_texts import write

LOG = """I1125 08:00:00.000000 1 solver.py:1] Solving net
I1125 08:00:01.000000 1 solver.py:2] Iteration 0 (0 iter/s, 0s/5 iters), loss = 2.5
I1125 08:00:01.000000 1 solver.py:3] Iteration 0, lr = 0.5
I1125 08:00:02.000000 1 tester.py:1] Iteration 5, Testing net (#0)
I1125 08:00:02.000000 1 tester.py:2]     Test net output #0: accuracy = 0.75
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write(tmp_path, NET)
    write(tmp_path, SOLVER, "solver.prototxt")
    for name in list(os.environ):
        if name.startswith(("OMPI_COMM", "PMI")):
            monkeypatch.delenv(name)
    return tmp_path


def stand_in(folder: Path, monkeypatch: pytest.MonkeyPatch, log: str, status: int) -> None:
    """A program in mpirun's place that keeps its arguments, writes ``log`` and ends with ``status``."""
    program = folder / "launcher"
    program.write_text(f'#!/bin/sh\necho "$@" > arguments\ncat >&2 <<"END"\n{log}END\nexit {status}\n')
    program.chmod(0o755)
    monkeypatch.setattr(mpirun, "_mpirun", lambda: str(program))


def test_what_is_started_and_told(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stand_in(folder, monkeypatch, LOG, 0)
    run = bpt.launch("solver.prototxt", 3, "max_iter: 6", flags=["--metrics=m.jsonl"], mpirun=["--oversubscribe"])
    words = f"--oversubscribe -n 3 {sys.executable} -m bpt train --solver=solver.prototxt --set=max_iter: 6"
    assert (folder / "arguments").read_text().strip() == f"{words} --metrics=m.jsonl"
    assert [(row.iteration, row.rate, row.values) for row in run.losses] == [(0, 0.5, {"loss": 2.5})]
    assert [(row.iteration, row.seconds, row.values) for row in run.test] == [(5, 2, {"accuracy": 0.75})]
    assert "Test net output #0: accuracy = 0.75" in capsys.readouterr().err


def test_a_job_that_fails(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(folder, monkeypatch, "error: rank 1 is lost\nmpirun ended\n", 1)
    with pytest.raises(RunError, match=r"^the job on 2 ranks has failed: rank 1 is lost$"):
        bpt.launch("solver.prototxt", 2, quiet=True)
    stand_in(folder, monkeypatch, "error: no such flag\n", 2)
    with pytest.raises(UserError, match=r"^no such flag$"):
        bpt.launch("solver.prototxt", 2, quiet=True)


def test_what_is_wrong_before(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(PrototxtError, match="max_itre"):
        bpt.launch("solver.prototxt", 2, "max_itre: 6")
    with pytest.raises(UserError, match="1 or more"):
        bpt.launch("solver.prototxt", 0)
    monkeypatch.setenv("PMIX_RANK", "0")
    with pytest.raises(UserError, match="this process is one"):
        bpt.launch("solver.prototxt", 2)
