"""The three upgrade tools, as a user runs them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.support.golden_files import UPGRADE
from tests.support.paths import ROOT
from tools import upgrade_net_proto_binary, upgrade_net_proto_text, upgrade_solver_proto_text

Main = Callable[[Sequence[str]], int]
CASES: dict[str, tuple[Main, str, str, str]] = {
    "upgrade_net_proto_text": (
        upgrade_net_proto_text.main, "v1_train_val.prototxt", "v1_train_val.upgraded.prototxt", "NetParameter text"
    ),
    "upgrade_net_proto_binary": (
        upgrade_net_proto_binary.main, "v1_weights.caffemodel", "v1_weights.upgraded.caffemodel", "NetParameter binary"
    ),
    "upgrade_solver_proto_text": (
        upgrade_solver_proto_text.main, "solver_v1.prototxt", "solver_v1.upgraded.prototxt", "SolverParameter text"
    ),
}  # fmt: skip


@pytest.fixture(params=CASES)
def tool(request: pytest.FixtureRequest) -> str:
    """The name of a tool."""
    return str(request.param)


def test_upgrades(tool: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main, old, new, words = CASES[tool]
    written = tmp_path / "new"
    for source in (UPGRADE / old, written):  # the second time there is nothing to upgrade
        assert main([str(source), str(written)]) == 0
        assert written.read_bytes() == (UPGRADE / new).read_bytes()
        out, error = capsys.readouterr()
        assert out == ""
        *notes, last = error.splitlines()
        assert last == f"Wrote upgraded {words} proto to {written}"
        if source == written:
            assert notes == [f"File already in latest proto format: {written}"]
        else:
            assert all(note.startswith(f"{source}:") for note in notes)
            assert "Successfully upgraded file specified using deprecated" in notes[-1]


def test_a_file_that_is_wrong(tool: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main = CASES[tool][0]
    assert main([str(tmp_path / "missing"), str(tmp_path / "new")]) == 2
    assert capsys.readouterr() == ("", f"error: {tmp_path}/missing: no such file\n")
    for source in (UPGRADE / CASES[tool][1], tmp_path / "missing"):  # the place is looked at first
        assert main([str(source), str(tmp_path / "no" / "new")]) == 2
        assert capsys.readouterr().err.startswith(f"error: {tmp_path}/no/new: cannot be written: there is no folder")
    assert list(tmp_path.iterdir()) == []


def test_weights_in_hdf5(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "w.caffemodel.h5"
    path.write_bytes(b"\x89HDF\r\n\x1a\n" + bytes(100))
    assert upgrade_net_proto_binary.main([str(path), str(tmp_path / "new")]) == 2
    reason = "is an HDF5 file, which has no old format: Caffe and bpt read it as it is"
    assert capsys.readouterr().err == f"error: {path}: {reason}\n"


def test_both_types_of_solver(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = UPGRADE / "solver_both_type_fields.prototxt"
    assert upgrade_solver_proto_text.main([str(path), str(tmp_path / "new")]) == 2
    assert capsys.readouterr().err.startswith(f'error: {path}:3:1: "solver_type" is the old form of "type"')
    assert list(tmp_path.iterdir()) == []


def test_what_is_dropped_makes_the_status_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    old.write_text('layers { layer { name: "r" type: "relu" pad: 1 } }')
    assert upgrade_net_proto_text.main([str(old), str(new)]) == 1
    assert new.read_text() == 'layer {\n  name: "r"\n  type: "ReLU"\n}\n'
    assert f'{old}:1:41: layer "r": Unknown parameter pad for layer type relu; it is ignored' in capsys.readouterr().err


def test_wrong_command_line(tool: str, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in ([], ["only"], ["a", "b", "c"], ["--what", "a", "b"]):
        assert CASES[tool][0](arguments) == 2
        assert re.fullmatch(r"error: .*(required|unrecognized).*\n", capsys.readouterr().err)


def test_where_the_command_line_is_explained(tool: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert CASES[tool][0](["only"]) == 2
    assert capsys.readouterr().err.endswith(f"required: OUTPUT ({tool}.py --help explains)\n")


def test_help(tool: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        CASES[tool][0](["--help"])
    assert caught.value.code == 0
    shown = capsys.readouterr().out
    assert f"tools/{tool}.py old" in shown
    assert "Exit status: 0 done" in shown


def test_is_a_program(tool: str, tmp_path: Path) -> None:
    path = ROOT / "tools" / f"{tool}.py"
    assert os.access(path, os.X_OK)
    assert path.read_text().startswith("#!/usr/bin/env python3\n")
    command = [sys.executable, str(path), str(UPGRADE / CASES[tool][1]), str(tmp_path / "new")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")
    assert "Wrote upgraded" in done.stderr
