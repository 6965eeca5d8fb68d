"""The networks that come along: where they are, and one of them with all that it takes in the current folder."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import bpt
from bpt.errors import UserError, WriteError, did_you_mean

_MAKERS = {
    "data/digits": ("make_digits.py",),
    "data/boxes": ("make_boxes.py data/boxes",),
    "data/brains": ("make_brains.py data/brains",),
    "data/clips": ("make_clips.py data/clips",),
    "data/digit_pairs": ("make_digits.py", "make_pairs.py data/digits data/digit_pairs"),
    "data/shapes": ("make_shapes.py data/shapes",),
}
"""Where data of the networks are → the scripts that make them, with what they are told; other data are elsewhere."""
_IMPORTED = {"make_boxes.py": "make_shapes.py"}  # by scripts, from others
_WRITTEN = "Written by"  # who has written a text is of no interest here
_SOURCE = re.compile(r'"(data/[^/"]+)')


def home() -> Path:
    """The folder with ``prototxt/`` and ``scripts/``: the repository, or what the package has brought along.

    Raises:
        UserError: there is neither.
    """
    for folder in (Path(bpt.__file__).parents[1], Path(sys.prefix) / "share" / "bpt"):
        if (folder / "prototxt" / "lenet").is_dir():
            return folder
    raise UserError("the networks that come along are not installed: install bpt from its wheel or its repository")


def examples() -> list[str]:
    """The names of the networks that have a solver."""
    return sorted(path.name for path in (home() / "prototxt").iterdir() if any(path.glob("solver*.prototxt")))


def list_examples() -> Iterator[str]:
    """A line for each: its name, and the first words of its text."""
    names = examples()
    width = max(map(len, names))
    for name in names:
        texts = sorted((home() / "prototxt" / name).glob("solver*.prototxt"))
        words = (line.lstrip("# ") for line in texts[0].read_text().splitlines() if line.startswith("#"))
        first = next((line for line in words if line and not line.startswith(_WRITTEN)), "")
        yield f"{name:{width}}  {first}".rstrip()
    yield f"bpt example {names[0]} copies the first of them into the current folder"


def copy_example(name: str) -> Iterator[str]:
    """Copy the network ``name``, its solvers and scripts that make its data; lines tell what was done and is next.

    Raises:
        UserError: there is none of that name.
        WriteError: a file could not be written.
    """
    known = examples()
    if name not in known:
        raise UserError(f'no network "{name}" comes along{did_you_mean(name, known) or "; bpt example lists them"}')
    source = home()
    texts = sorted((source / "prototxt" / name).rglob("*.prototxt"))
    data = sorted({found for text in texts for found in _SOURCE.findall(text.read_text())})
    makers = [maker for place in data for maker in _MAKERS.get(place, ())]
    named = [maker.split()[0] for maker in makers]
    named += [_IMPORTED[name] for name in named if name in _IMPORTED]
    scripts = [source / "scripts" / name for name in named]
    for path in (*texts, *scripts):
        yield _copied(path, Path(path.relative_to(source)))
    yield "Next:"
    for maker in makers:
        yield f"  python scripts/{maker}"
    if others := [place for place in data if place not in _MAKERS]:
        yield f"  put its data in {', '.join(others)}, or write in its text where they are"
    solver = min(
        (path for path in texts if path.name.startswith("solver")), key=lambda path: (len(path.name), path.name)
    )
    yield f"  bpt train --solver {solver.relative_to(source)}"


def _copied(source: Path, target: Path) -> str:
    if target.exists():
        return f"{target} is there already, and stays"
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
    except OSError as error:
        raise WriteError(target, error.strerror) from None
    return str(target)
