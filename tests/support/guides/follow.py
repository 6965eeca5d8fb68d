"""Follows a guide in the current folder, by the Python that has bpt from its wheel: ``follow.py STEPS ANSWERS``.

STEPS is a JSON list of ``{"file", "language", "text"}``, of which all Python shares its names, as in a notebook.
ANSWERS gets ``{"status", "out", "err"}`` for each step, up to the first that fails.
"""

from __future__ import annotations

import contextlib
import io
import json
import re
import shlex
import shutil
import subprocess
import sys
import traceback
from pathlib import Path

PATIENCE = 400  # seconds for a block of commands
_SNAPSHOT = re.compile(r"(snapshots/\S+_iter_)\d+(\.caffemodel|\.solverstate)")


def stand_in(text: str) -> None:
    """Let there be the snapshots that ``text`` names: training is cut short here, so theirs have smaller numbers."""
    for found in _SNAPSHOT.finditer(text):
        there = sorted(Path().glob(f"{found[1]}*{found[2]}"), key=lambda path: path.stat().st_mtime)
        if there and not Path(found[0]).exists():
            shutil.copyfile(there[-1], found[0])


def by_shell(text: str) -> dict[str, object]:
    own = f"{shlex.quote(sys.executable)} {shlex.quote(__file__)}"
    before_each_command = f"trap '{own} \"$BASH_COMMAND\"' DEBUG"
    words = ["bash", "-e", "-o", "pipefail", "-c", f"{before_each_command}\n{text}"]
    try:
        done = subprocess.run(
            words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE, check=False
        )
    except subprocess.TimeoutExpired:
        return {"status": "too slow", "out": "", "err": f"not done after {PATIENCE} s"}
    return {"status": done.returncode, "out": done.stdout, "err": done.stderr}


def by_python(text: str, names: dict[str, object]) -> dict[str, object]:
    out, status = io.StringIO(), 0
    with contextlib.redirect_stdout(out):
        try:
            exec(compile(text, "guide", "exec"), names)
        except Exception:
            status = 1
            return {"status": status, "out": out.getvalue(), "err": traceback.format_exc()}
    return {"status": status, "out": out.getvalue(), "err": ""}


def main(steps: str, answers: str) -> None:
    names: dict[str, object] = {"__name__": "guide"}
    sys.path.insert(0, "")  # as in a notebook
    found = []
    for step in json.loads(Path(steps).read_text()):
        stand_in(step["text"])
        if step["file"]:
            Path(step["file"]).write_text(step["text"])
            found.append({"status": 0, "out": "", "err": ""})
        elif step["language"] == "sh":
            found.append(by_shell(step["text"]))
        else:
            found.append(by_python(step["text"], names))
        if found[-1]["status"]:
            break
    Path(answers).write_text(json.dumps(found))


if __name__ == "__main__":
    if len(sys.argv) == 2:
        stand_in(sys.argv[1])
    else:
        main(*sys.argv[1:])
