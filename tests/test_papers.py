"""Every command in the tables of docs/papers.md is one that bpt, its benches or its tools take; slowly: it runs."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from bpt.cli.main import make_parser
from scripts.benches.harness.launch import ROOT, environment
from scripts.benches.papers.commands import Command, bench_parser, commands, rows
from tests.golden_cases import GOLDEN
from tests.mpi.mpirun import needs_mpi

PAPERS = ("MPI-FC", "BPT-CNN", "StaticLB", "CGDP")  # whose tables have a column of commands


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


def test_everything_numbered_in_bpt_cnn_has_a_row() -> None:
    """``Eq. 3 to 5`` are three, ``Fig. 7, 8`` are two."""
    text = "; ".join(row.cells[0] for row in rows(("BPT-CNN",)))

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


def test_every_command_is_understood() -> None:
    for command in commands():
        program, *words = command.of_program
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
        for name in re.findall(r"`([\w/]+(?:\.\w+|/))(?:: \w+)?`", row.cells[1]):
            path = ROOT / name
            if "/" not in name or not path.exists():
                path = next((p / name for p in (folder, folder.parent) if (p / name).exists()), path)
            assert path.exists(), (name, row)
            folder = path if path.is_dir() else path.parent


@needs_mpi
@pytest.mark.slow
@pytest.mark.parametrize("command", commands(), ids=lambda command: command.text)
def test_every_command_runs(command: Command, tmp_path: Path) -> None:
    for name in ("prototxt", "scripts", "tools"):
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / "data" / "digits").mkdir(parents=True)
    for part in ("train_lmdb", "test_lmdb"):
        (tmp_path / "data" / "digits" / part).symlink_to(GOLDEN / "lmdb" / f"digits_{part}")
    variables = environment() | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command.argv(tmp_path), cwd=tmp_path, env=variables, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
