"""List the example networks, and copy one of them with its scripts into the current folder."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from bpt.apps.commands.example_data import RECIPES
from bpt.base.errors import UserError, WriteError, did_you_mean
from bpt.base.version import PACKAGE

_IMPORTED = {"make_boxes.py": "make_shapes.py"}  # script → the script that it imports
_WRITTEN = "Written by"  # begins a paragraph that the list leaves out
_SENTENCE = re.compile(r".*?\.(?= [A-Z]|$)")
_NET = re.compile(r'^net: "(.+)"', re.MULTILINE)
_PLACE = re.compile(r'"(data/[^/"]+)')
_SCRIPT = re.compile(r"scripts/(\w+\.py)")


def home() -> Path:
    """Return the folder with ``prototxt/`` and ``scripts/``: the repository, or the shared files of the package.

    Raises:
        UserError: neither folder exists.
    """
    for folder in (PACKAGE.parent, Path(sys.prefix) / "share" / "bpt"):
        if (folder / "prototxt" / "lenet").is_dir():
            return folder
    raise UserError("the example networks are not installed: install bpt from its wheel or its repository")


def examples() -> list[str]:
    """Return the names of the networks that have a solver."""
    return sorted(path.name for path in (home() / "prototxt").iterdir() if (path / "solver.prototxt").exists())


def list_examples() -> Iterator[str]:
    """Yield a line for each example: its name, and the first sentence of its solver's text."""
    names = examples()
    width = max(map(len, names))
    for name in names:
        yield f"{name:{width}}  {_about((home() / 'prototxt' / name / 'solver.prototxt').read_text())}"
    yield "bpt example lenet copies LeNet into the current folder; it trains in less than a minute"


def _about(text: str) -> str:
    comments = (line.lstrip("# ") for line in text.splitlines() if line.startswith("#"))
    paragraphs = "\n".join(comments).split("\n\n")
    words = next(paragraph for paragraph in paragraphs if not paragraph.startswith(_WRITTEN)).replace("\n", " ")
    sentence = _SENTENCE.match(words)
    return sentence.group() if sentence else words


def copy_example(name: str) -> Iterator[str]:
    """Copy the network ``name``, its solvers and the scripts for its data; yield what was done and what to type next.

    Raises:
        UserError: no example has that name.
        WriteError: a file could not be written.
    """
    known = examples()
    if name not in known:
        raise UserError(f'there is no example "{name}"{did_you_mean(name, known) or "; bpt example lists them"}')
    source = home()
    folder = source / "prototxt" / name
    solver = next(path for path in (folder / "solver_small.prototxt", folder / "solver.prototxt") if path.exists())
    net = _only_match(_NET, solver.read_text())
    text = (source / net).read_text()
    place = _only_match(_PLACE, text)
    lines = list(RECIPES[place].lines(place, net, text))
    named = _SCRIPT.findall("\n".join(lines))
    named += [_IMPORTED[name] for name in named if name in _IMPORTED]
    for path in (*sorted(folder.rglob("*.prototxt")), *(source / "scripts" / name for name in named)):
        yield _copy_file(path, Path(path.relative_to(source)))
    yield "Next:"
    for line in (*lines, f"bpt train --solver {solver.relative_to(source)}"):
        yield f"  {line}"


def _only_match(pattern: re.Pattern[str], text: str) -> str:
    (found,) = set(pattern.findall(text))
    return str(found)


def _copy_file(source: Path, target: Path) -> str:
    if target.exists():
        return f"{target} exists already; it was not changed"
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
    except OSError as error:
        raise WriteError(target, error.strerror) from None
    return str(target)
