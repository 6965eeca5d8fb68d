"""``scripts/bench startup``: each moment belongs to one phase, and the tables say how programs compare."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from scripts.benches import startup
from scripts.benches.harness.launch import environment
from scripts.benches.startup import Program, table, total, totals
from scripts.benches.startup_probe import (
    BIND,
    IMPORTS,
    INTERPRETER,
    ITERATION,
    OTHERS,
    PHASES,
    PLAN,
    SYMPY,
    TORCH,
    Phases,
)
from tests.support.paths import ROOT


def test_a_moment_belongs_to_the_innermost_phase(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(100))
    monkeypatch.setattr(time, "monotonic", lambda: float(next(clock)))
    monkeypatch.setattr(time, "process_time", lambda: 0.0)
    phases = Phases(start=-5.0)  # made at 0, and the first phase begins at 1
    inner = phases.during(TORCH, lambda: None)  # from 3 to 4
    phases.during(BIND, inner)()  # from 2 to 5
    phases.during(ITERATION, inner)()  # from 6 to 9, torch from 7 to 8
    phases.during(BIND, lambda: None)()  # after the first iteration nothing counts
    seconds = {phase: wall for phase, (wall, _) in phases.seconds.items() if wall}
    assert seconds == {INTERPRETER: 5.0, PLAN: 2.0, BIND: 2.0, TORCH: 2.0, ITERATION: 2.0}


def test_the_probe_sees_all_phases_of_a_run(tmp_path: Path) -> None:
    words = startup.train_words(tmp_path)
    answer = tmp_path / "phases"
    command = [sys.executable, str(startup.PROBE), str(answer), str(time.monotonic()), *words]
    variables = environment(1) | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=variables, cwd=os.sep, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    seconds = json.loads((tmp_path / "phases.0").read_text())
    assert tuple(seconds) == PHASES
    assert all(seconds[phase][1] > 0 for phase in (INTERPRETER, TORCH, OTHERS, IMPORTS, PLAN, BIND, ITERATION))
    assert seconds[SYMPY] == [0.0, 0.0]


def test_tables() -> None:
    base = Program("import torch", dict, [{"all": (1.0, 1.0)}, {"all": (3.0, 3.0)}, {"all": (1.0, 1.0)}])
    ours = Program("bpt, 1 rank", dict, [{TORCH: (1.0, 0.5), BIND: (1.0, 0.5)}, {TORCH: (2.0, 1.5), BIND: (1.0, 0.5)}])
    assert total(ours) == (2.5, 1.5)
    head, *rows, last = table([ours])
    assert head.split() == ["phase", "bpt,", "1", "rank"]
    assert rows[PHASES.index(TORCH)].split() == ["torch", "1500", "/", "1000"]
    assert last.split() == ["all", "2500", "/", "1500"]
    assert totals([ours], base)[1].split() == ["bpt,", "1", "rank", "2500", "/", "1500", "2.50", "1.50"]


def test_a_program_that_fails_ends_the_bench_with_its_reason(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"error: .*no\.prototxt"):
        startup.bpt_start(ROOT, ["train", "--solver", str(tmp_path / "no.prototxt")], tmp_path, 1, 1)
