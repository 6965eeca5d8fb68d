"""Every command in the tables of docs/papers.md is one that bpt, its benches or its tools take; slowly: it runs."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from bpt.cli.main import make_parser
from scripts.benches.harness.launch import ROOT, environment
from scripts.benches.papers.commands import PAGE, Command, bench_parser, commands, rows
from tests.support.mpirun import needs_mpi
from tests.support.paths import GOLDEN

PAPERS = ("MPI-FC", "Hybrid", "BPT-CNN", "StaticLB", "CGDP")  # whose tables have a column of commands
VARIABLES = environment() | {"PYTHONPATH": str(ROOT)}


def test_every_row_says_how_to_run_it() -> None:
    listed = rows()
    assert len(listed) > 25 and {row.paper for row in listed} >= set(PAPERS)
    for row in listed:
        assert len(row.cells) in (3, 4), row
        assert row.commands or row.is_as_above, row
    numbered = " ".join(row.cells[0] for row in rows(("MPI-FC", "CGDP")))
    assert re.findall(r"Algorithm \d", numbered) == ["Algorithm 1", "Algorithm 2"]
    assert sorted(re.findall(r"Fig\. \d", numbered)) == sorted(f"Fig. {n}" for n in (*range(1, 7), *range(1, 9)))
    assert sorted(re.findall(r"Table \d", numbered)) == ["Table 1", "Table 1", "Table 2", "Table 3"]
    assert re.findall(r"Eq\. \d|Proposition 4.1", numbered) == ["Eq. 1", "Eq. 2", "Proposition 4.1"]


def test_everything_numbered_in_staticlb_has_a_row() -> None:
    numbered = " ".join(row.cells[0] for row in rows(("StaticLB",)))
    assert re.findall(r"step \d", numbered) == [f"step {n}" for n in range(1, 5)]
    assert sorted(set(re.findall(r"Fig\. \d", numbered))) == [f"Fig. {n}" for n in range(1, 10)]
    assert re.findall(r"Table \d", numbered) == [f"Table {n}" for n in range(1, 5)]


def named(what: str, text: str) -> list[int]:
    """Of "Eq. 3 to 5" three numbers, of "Fig. 7, 8" and "Eq. 1 and 2" two."""
    found: list[int] = []
    for numbers in re.findall(rf"\b{what} (\d+(?:(?:, | to | and )\d+)*)", text):
        for part in re.split(", | and ", numbers):
            first, _, last = part.partition(" to ")
            found += range(int(first), int(last or first) + 1)
    return sorted(set(found))


def test_everything_numbered_in_hybrid_has_a_row() -> None:
    text = "; ".join(row.cells[0] for row in rows(("Hybrid",)))
    assert named(r"Eq\.", text) == list(range(1, 16))
    assert named(r"Fig\.", text) == list(range(1, 7))
    assert named("Table", text) == [1, 2, 3, 4]
    assert named("Algorithm", text) == [1, 2, 3]


def test_everything_numbered_in_bpt_cnn_has_a_row() -> None:
    text = "; ".join(row.cells[0] for row in rows(("BPT-CNN",)))
    assert named(r"Eq\.", text) == list(range(1, 24))
    assert named(r"Fig\.", text) == list(range(1, 16))
    assert named("Table", text) == [1, 2]
    assert set(re.findall(r"Algorithm (\d\.\d)", text)) == {"3.1", "3.2", "4.1", "4.2"}


def test_every_command_is_understood() -> None:
    for command in commands():
        program, *words = command.of_program
        if program == "bpt":
            make_parser().parse_args(words)
        elif program == "scripts/bench":
            bench_parser(words[0]).parse_args(words[1:])
        for path in (program, *words):
            places = ROOT / path, ROOT / "prototxt" / path
            elsewhere = path.startswith(("parallel_param", "data/", "snapshots/"))
            assert "/" not in path or any(place.exists() for place in places) or elsewhere, path


def test_every_file_is_there() -> None:
    """A name without a folder is in that of the name before it; words that are no paths are left out."""
    for row in rows():
        folder = ROOT
        for name in re.findall(r"`([\w/]+(?:\.\w+|/))(?:: \w+)?`", row.cells[1]):
            path = ROOT / name
            if "/" not in name or not path.exists():
                path = next((p / name for p in (folder, folder.parent) if (p / name).exists()), path)
            assert path.exists(), (name, row)
            folder = path if path.is_dir() else path.parent


def test_every_file_defines_the_name_that_its_row_gives() -> None:
    """`path.py: name` in a row's second cell or its last; a name without a folder is in a folder of the row."""
    named = [(row, *pair) for row in rows() for cell in row.cells for pair in NAMED.findall(cell)]
    assert len(named) > 10
    for row, path, name in named:
        folders = [ROOT, *(ROOT / folder for folder in re.findall(r"`([\w/]+)/[\w.]*`", row.cells[1]))]
        files = [place / path for place in folders if (place / path).exists()]
        assert any(re.search(DEFINES.format(name), file.read_text(), re.MULTILINE) for file in files), (path, name)


def test_every_class_and_method_of_the_papers_is_defined_in_its_file() -> None:
    """The table "The papers' classes and methods": each name in code is in one of the row's files."""
    section = PAGE.read_text().partition("## The papers' classes and methods")[2].partition("\n## ")[0]
    table = [line.strip("|").split(" | ") for line in section.splitlines() if line.startswith("|")][2:]
    assert len(table) > 20
    folder = ROOT / "bpt"
    for _, _, here, places in table:
        files = []
        for place in re.findall(r"`([\w/.]+)`", places):
            path = next(p for p in (ROOT / "bpt" / place, folder / place) if p.exists())
            folder = path if path.is_dir() else path.parent
            files += list(path.rglob("*.py")) if path.is_dir() else [path]
        text = "\n".join(file.read_text() for file in files)
        for name in re.findall(r"`(\w+)`", here):
            assert re.search(rf"\b{name}\b", text), (name, places)


NAMED = re.compile(r"`([\w/]+\.py): (\w+)`")
DEFINES = r"^\s*(?:(?:class|def) {0}\b|{0}\b.*=)"


@pytest.fixture(scope="session")
def brains(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What scripts/make_brains.py makes, but fewer."""
    folder = tmp_path_factory.mktemp("brains")
    words = [sys.executable, str(ROOT / "scripts" / "make_brains.py"), "--out", str(folder)]
    subprocess.run([*words, "--train", "12", "--test", "8"], check=True, env=VARIABLES)
    return folder


@needs_mpi
@pytest.mark.slow
@pytest.mark.parametrize("command", commands(), ids=lambda command: command.text)
def test_every_command_runs(command: Command, tmp_path: Path, brains: Path) -> None:
    for name in ("prototxt", "scripts", "tools"):
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / "data" / "digits").mkdir(parents=True)
    (tmp_path / "data" / "brains").symlink_to(brains)
    for part in ("train_lmdb", "test_lmdb"):
        (tmp_path / "data" / "digits" / part).symlink_to(GOLDEN / "lmdb" / f"digits_{part}")
    for each in (*command.before, command):
        done = subprocess.run(
            each.argv(tmp_path), cwd=tmp_path, env=VARIABLES, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr


def test_the_first_table_names_every_paper_with_its_knob_and_a_command() -> None:
    """The page begins with it; each command is one that bpt takes, and each paper has a BibTeX entry."""
    text = PAGE.read_text()
    table = [line.strip("|").split(" | ") for line in text.partition("## ")[0].splitlines() if line.startswith("|")]
    assert [cell.strip() for cell in table[0]] == ["paper", "year", "venue", "DOI", "`parallel_param`", "command"]
    assert len(table[2:]) == len(PAPERS) == len(re.findall(r"^@\w+{", text, re.MULTILINE))
    for paper, _, _, _, knob, command in table[2:]:
        assert paper.strip().startswith(tuple(f"**[{name}]" for name in PAPERS))
        lines = re.findall(r"`([^`]+)`", command)
        assert re.search(r"`\w+: ", knob) and lines, paper
        for line in lines:
            make_parser().parse_args(Command(line).of_program[1:])
