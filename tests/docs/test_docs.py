"""The Python in the guides runs as it stands there, and prints what it says it prints."""

from __future__ import annotations

import ast
import contextlib
import io
import logging
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import bpt
from bpt.base.errors import UserError
from bpt.cli.main import make_parser
from scripts.make_digits import write_pictures
from tests.support.guides.blocks import GUIDES, Block, blocks_of
from tests.support.paths import GOLDEN, ROOT

LONG = {"export.md"}  # compiles; tests/apps/export/test_program.py tries the same on small nets


def lay_out(folder: Path) -> None:
    """Let ``folder`` be like the repository after ``make demo``, on fewer digits."""
    (folder / "prototxt").symlink_to(ROOT / "prototxt")
    (folder / "data" / "digits").mkdir(parents=True)
    for part in ("train_lmdb", "test_lmdb"):
        (folder / "data" / "digits" / part).symlink_to(GOLDEN / "lmdb" / f"digits_{part}")
    write_pictures(folder / "data" / "digits")


@pytest.fixture(scope="module")
def snapshots(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a little training leaves, under the names that ``make demo`` gives."""
    folder = tmp_path_factory.mktemp("demo")
    lay_out(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        with bpt.get_solver("prototxt/lenet/solver.prototxt", "test_initialization: false random_seed: 1") as solver:
            solver.step(30)
            weights = Path(solver.snapshot()).with_suffix(".caffemodel")
        weights.rename("snapshots/lenet/lenet_iter_1000.caffemodel")
    return folder / "snapshots"


@pytest.fixture
def repository(tmp_path: Path, snapshots: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The current folder is like the repository after ``make demo``, on fewer digits and less training."""
    lay_out(tmp_path)
    shutil.copytree(snapshots, tmp_path / "snapshots")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])  # a guide may install bpt.caffe as caffe
    monkeypatch.setattr(logging.getLogger("bpt"), "level", logging.WARNING)  # a guide may set it
    yield
    for name in [name for name in sys.modules if name.split(".")[0] == "caffe"]:
        del sys.modules[name]


def is_run_here(block: Block) -> bool:
    """Python that takes no other process."""
    return block.language == "python" and not (block.file or block.not_run or block.is_slow)


@pytest.mark.usefixtures("repository")
@pytest.mark.parametrize(
    "guide",
    [
        pytest.param(guide, id=guide.name, marks=[pytest.mark.slow] if guide.name in LONG else [])
        for guide in GUIDES
        if any(map(is_run_here, blocks_of(guide)))
    ],
)
def test_what_the_guide_says(guide: Path) -> None:
    names: dict[str, object] = {"__name__": "guide"}
    lines = guide.read_text().splitlines()
    for block in filter(is_run_here, blocks_of(guide)):
        for statement in ast.parse("\n" * (block.line - 1) + block.text, guide.name).body:
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                exec(compile(ast.Module([statement], []), guide.name, "exec"), names)
            promise = re.match(r"print\(.*\)  # (.*)", lines[statement.lineno - 1])
            if promise:
                assert printed.getvalue().strip() == promise[1], f"{guide.name}:{statement.lineno}"


def bpt_commands(guide: Path) -> list[list[str]]:
    """What stands behind ``bpt`` in the guide's blocks of commands, with or without a launcher before it."""
    found = []
    for block in blocks_of(guide):
        for line in block.text.replace("\\\n", " ").splitlines() if block.language == "sh" else ():
            if re.match(r"(\w+=\S+ )*(\S*/)?(bpt|mpirun|srun) ", line):
                words = shlex.split(line, comments=True)
                start = next((n for n, word in enumerate(words) if Path(word).name == "bpt"), len(words))
                end = next((n for n, word in enumerate(words) if re.match(r"\d?[|<>&;]", word)), len(words))
                found.append(words[start + 1 : end])
    return [words for words in found if words]


@pytest.mark.parametrize("guide", [guide for guide in GUIDES if bpt_commands(guide)], ids=lambda guide: guide.name)
def test_commands_are_taken(guide: Path) -> None:
    """Each names a command that there is, and flags that it has."""
    parser = make_parser()
    for words in bpt_commands(guide):
        told = io.StringIO()
        try:
            with contextlib.redirect_stderr(told):
                parser.parse_args(words)
        except (SystemExit, UserError) as error:
            pytest.fail(f"bpt {' '.join(words)}: {error} {told.getvalue()}")


def anchors(guide: Path) -> set[str]:
    """What a heading is linked by: its words in small letters, with dashes between."""
    headings = re.findall(r"^#+ (.*)$", guide.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("guide", GUIDES, ids=lambda guide: guide.name)
def test_links_lead_somewhere(guide: Path) -> None:
    """To a file of the repository and, in a guide, to a heading that it has."""
    text = re.sub(r"^```.*?^```$", "", guide.read_text(), flags=re.MULTILINE | re.DOTALL)
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if not re.match(r"https?:|mailto:", link):
            name, _, anchor = link.partition("#")
            target = guide.parent / name if name else guide
            assert target.exists(), link
            assert not anchor or anchor in anchors(target), link


def test_pictures_are_small_shown_and_told_in_words() -> None:
    """Each is in a guide, with what it shows for those who cannot see it."""
    shown = {
        Path(link).name: words
        for guide in GUIDES
        for words, link in re.findall(r"!\[([^\]]*)\]\(([^)]+)\)", guide.read_text())
    }
    pictures = {path.name: path for path in (ROOT / "docs" / "pictures").iterdir()}
    assert shown.keys() == pictures.keys()
    assert all(len(words.split()) >= 5 for words in shown.values())
    assert [name for name, path in pictures.items() if path.stat().st_size > 100_000] == []


@pytest.mark.skipif(not shutil.which("git") or not (ROOT / ".git").exists(), reason="no working tree of git")
def test_no_file_holds_what_a_merge_has_left() -> None:
    """Of all files that git keeps: its marks of two versions that it could not make one of."""
    marks = r"^(<{7}|[|]{7}|>{7})( |$)"
    found = subprocess.run(
        ["git", "-c", "safe.directory=*", "grep", "-InE", marks], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (found.returncode, found.stdout) == (1, ""), found.stdout + found.stderr
