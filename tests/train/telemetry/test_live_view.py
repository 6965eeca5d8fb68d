"""The live view of a metrics file: what it waits for."""

from __future__ import annotations

import io
import json
import time
from pathlib import Path

import pytest

from bpt.base.errors import FileError
from bpt.train.telemetry.live_view import watch

START = {"kind": "start", "time": 0.0, "net": "net", "solver": "SGD", "ranks": 1, "max_iter": 4}
END = {"kind": "end", "time": 1.0, "iteration": 4}


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_on_a_terminal_it_waits_until_training_makes_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, terminal, naps = tmp_path / "run.jsonl", Terminal(), list[float]()

    def nap(seconds: float) -> None:
        naps.append(seconds)
        if len(naps) == 2:
            path.write_text(f"{json.dumps(START)}\n{json.dumps(END)}\n")

    monkeypatch.setattr(time, "sleep", nap)
    watch(str(path), out=terminal)
    assert len(naps) == 2
    shown = terminal.getvalue()
    assert shown.count(str(path)) == 2  # in one line, with the command that makes it
    assert "net · SGD · one process · ended" in shown


@pytest.mark.parametrize(("once", "out"), [(True, Terminal()), (False, io.StringIO())])
def test_else_a_missing_file_is_an_error(tmp_path: Path, once: bool, out: io.StringIO) -> None:
    with pytest.raises(FileError, match="No such file"):
        watch(str(tmp_path / "run.jsonl"), once, out)


def test_a_missing_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="No such file"):
        watch(str(tmp_path / "none" / "run.jsonl"), out=Terminal())
