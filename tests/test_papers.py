"""Every command in the tables of docs/papers.md is one that bpt, its benches or its tools take; slowly: it runs."""

from __future__ import annotations

import argparse
import os
import re
import runpy
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from bpt.cli.main import make_parser
from tests.golden_cases import GOLDEN
from tests.mpi.mpirun import needs_mpi

ROOT = Path(__file__).parents[1]
SECTIONS = ("MPI-FC", "BPT-CNN", "StaticLB", "CGDP")  # whose tables have a column of commands
HEAD = ["in the paper", "where it stands", "how to run it", "what differs"]
COMMAND = re.compile(r"`((?:mpirun|bpt|scripts/bench|tools/)[^`]*)`")


def rows(sections: tuple[str, ...] = SECTIONS) -> list[list[str]]:
    """The cells of all rows of these tables."""
    found = []
    for section in re.split(r"^## ", (ROOT / "docs" / "papers.md").read_text(), flags=re.MULTILINE):
        if section.startswith(sections):
            table = [line for line in section.splitlines() if line.startswith("|")]
            cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in table]
            assert [cell.strip() for cell in cells[0]] == HEAD
            found += cells[2:]
    return found


def commands() -> list[str]:
    """Each once, in order."""
    return list(dict.fromkeys(command for row in rows() for command in COMMAND.findall(row[2])))


def words_of(command: str) -> list[str]:
    """Of a command, without mpirun."""
    words = shlex.split(command)
    return words[words.index("bpt") :] if words[0] == "mpirun" else words


def test_every_row_says_how_to_run_it() -> None:
    listed = rows()
    assert len(listed) > 25
    for row in listed:
        assert len(row) in (3, 4), row
        assert COMMAND.search(row[2]) or row[2].startswith("the same"), row
    numbered = " ".join(row[0] for row in rows(("MPI-FC", "CGDP")))
    assert re.findall(r"Algorithm \d", numbered) == ["Algorithm 1", "Algorithm 2"]
    assert sorted(re.findall(r"Fig\. \d", numbered)) == sorted(f"Fig. {n}" for n in (*range(1, 7), *range(1, 9)))
    assert sorted(re.findall(r"Table \d", numbered)) == ["Table 1", "Table 1", "Table 2", "Table 3"]
    assert re.findall(r"Eq\. \d|Proposition 4.1", numbered) == ["Eq. 1", "Eq. 2", "Proposition 4.1"]


def test_everything_numbered_in_staticlb_has_a_row() -> None:
    numbered = " ".join(row[0] for row in rows(("StaticLB",)))
    assert re.findall(r"step \d", numbered) == [f"step {n}" for n in range(1, 5)]
    assert sorted(set(re.findall(r"Fig\. \d", numbered))) == [f"Fig. {n}" for n in range(1, 10)]
    assert re.findall(r"Table \d", numbered) == [f"Table {n}" for n in range(1, 5)]


def test_everything_numbered_in_bpt_cnn_has_a_row() -> None:
    """``Eq. 3 to 5`` are three, ``Fig. 7, 8`` are two."""
    text = "; ".join(row[0] for row in rows(("BPT-CNN",)))

    def named(what: str) -> list[int]:
        found: list[int] = []
        for numbers in re.findall(rf"\b{what} (\d+(?:(?:, | to )\d+)*)", text):
            for part in numbers.split(", "):
                first, _, last = part.partition(" to ")
                found += range(int(first), int(last or first) + 1)
        return sorted(set(found))

    assert named(r"Eq\.") == list(range(1, 24))
    assert named(r"Fig\.") == list(range(1, 16))
    assert named("Table") == [1, 2]
    assert set(re.findall(r"Algorithm (\d\.\d)", text)) == {"3.1", "3.2", "4.1", "4.2"}


def bench_parser(name: str) -> argparse.ArgumentParser:
    """Of ``scripts/bench name``."""
    parser = argparse.ArgumentParser()
    runpy.run_path(str(ROOT / "scripts" / "bench"))["BENCHES"][name].add_arguments(parser)
    return parser


def test_every_command_is_understood() -> None:
    for command in commands():
        program, *words = words_of(command)
        if program == "bpt":
            make_parser().parse_args(words)
        elif program == "scripts/bench":
            bench_parser(words[0]).parse_args(words[1:])
        for path in (program, *words):
            places = ROOT / path, ROOT / "prototxt" / path
            assert "/" not in path or any(place.exists() for place in places) or path.startswith("parallel_param"), path


def test_every_file_is_there() -> None:
    """A name without a folder is in that of the name before it; words that are no paths are left out."""
    for row in rows():
        folder = ROOT
        for name in re.findall(r"`([\w/]+(?:\.\w+|/))(?:: \w+)?`", row[1]):
            path = ROOT / name
            if "/" not in name or not path.exists():
                path = next((p / name for p in (folder, folder.parent) if (p / name).exists()), path)
            assert path.exists(), (name, row)
            folder = path if path.is_dir() else path.parent


@needs_mpi
@pytest.mark.slow
@pytest.mark.parametrize("command", commands())
def test_every_command_runs(command: str, tmp_path: Path) -> None:
    for name in ("prototxt", "scripts", "tools"):
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / "data" / "digits").mkdir(parents=True)
    for part in ("train_lmdb", "test_lmdb"):
        (tmp_path / "data" / "digits" / part).symlink_to(GOLDEN / "lmdb" / f"digits_{part}")
    words = shlex.split(command)
    if words[0] == "scripts/bench" and "--output" in bench_parser(words[1]).format_help():
        words += ["--output", str(tmp_path)]
    at = words.index("bpt") if "bpt" in words else 0
    words[at : at + 1] = [sys.executable, *(["-m", "bpt"] if "bpt" in words else [words[at]])]
    if words[0] == "mpirun":
        beside = Path(sys.executable).with_name("mpirun")
        words[:1] = [str(beside) if beside.exists() else "mpirun", "--oversubscribe"]
    root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(words, cwd=tmp_path, env=os.environ | root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
