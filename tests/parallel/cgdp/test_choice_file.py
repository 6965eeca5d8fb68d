"""The file in which a choice of chunks is kept: what comes back, for whom, and what is wrong with it."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bpt.base.errors import BptError, FileError, WriteError
from bpt.graph.net_digest import net_digest
from bpt.parallel.balance.profile import RankFacts
from bpt.parallel.cgdp.choice_file import ChoiceFile, Setting
from bpt.parallel.cgdp.chunks import Trial
from bpt.system.comm.base import Communicator
from bpt.system.comm.grid import ProcessGrid
from bpt.system.device import CPU
from tests.support.doubles.thread_ranks import run_ranks
from tests.support.golden_cases import graph_of
from tests.support.parallels import NET
from tests.support.training import solver_of

RANKS = (RankFacts("a", "cpu (X)", 1), RankFacts("b", "cuda (Y)", 2))
SETTING = Setting("0123456789abcdef", 5, "2 ranks = 2 replicas", RANKS)
TRIALS = [Trial(1, 0.5, (1,) * 5), Trial(None, 0.25, (3, 2))]


def on_ranks(path: Path, setting: Setting, work: Callable[[ChoiceFile], Any]) -> list[Any]:
    """What ``work`` returns, or raises, on each of two ranks."""

    def run(comm: Communicator) -> Any:
        try:
            return work(ChoiceFile(str(path), setting, ProcessGrid.regular(comm, 1, 1)))
        except BptError as error:
            return error

    return run_ranks(2, run)


def write(path: Path, setting: Setting = SETTING) -> None:
    assert on_ranks(path, setting, lambda file: file.write((3, 2), TRIALS)) == [None, None]


def test_what_is_written_comes_back_on_all_ranks(tmp_path: Path) -> None:
    path = tmp_path / "choice.json"
    assert on_ranks(path, SETTING, ChoiceFile.read) == [None, None]
    write(path)
    assert on_ranks(path, SETTING, ChoiceFile.read) == [(3, 2), (3, 2)]
    assert os.listdir(tmp_path) == ["choice.json"]
    content = json.loads(path.read_text())
    assert content["format"] == 1
    assert content["lengths"] == [3, 2]
    assert content["ranks"][1] == {"host": "b", "device": "cuda (Y)", "threads": 2}
    assert content["trials"] == [{"lengths": [1] * 5, "seconds": 0.5}, {"lengths": [3, 2], "seconds": 0.25}]


@pytest.mark.parametrize(
    ("now", "difference"),
    [
        (replace(SETTING, net="fedcba9876543210"), "it is of another network or batch"),
        (
            replace(SETTING, grid="4 ranks = 4 replicas"),
            "it is of 2 ranks = 2 replicas, now there are 4 ranks = 4 replicas",
        ),
        (replace(SETTING, ranks=(RankFacts("c", "cpu (X)", 1), RANKS[1])), "rank 0 ran on host a, now c"),
        (
            replace(SETTING, ranks=(RANKS[0], RankFacts("b", "cuda (Z)", 4))),
            "rank 1 computed on cuda (Y), now cuda (Z); rank 1 had threads 2, now 4",
        ),
    ],
)
def test_a_choice_of_another_run_is_told_and_left(
    tmp_path: Path, now: Setting, difference: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "choice.json"
    write(path)
    with caplog.at_level(logging.WARNING, "bpt"):
        assert on_ranks(path, now, ChoiceFile.read) == [None, None]
    warning = f"Chunks: {path} was not chosen for this run: {difference}. A new search will overwrite it"
    assert caplog.messages == [warning] * 2
    write(path, now)
    assert on_ranks(path, now, ChoiceFile.read) == [(3, 2), (3, 2)]


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        ({"format": 2}, "has format 2, but this bpt reads format 1"),
        ({"format": None}, 'is not a choice of chunks: "format" is missing, or not a whole number'),
        ({"ranks": {}}, 'is not a choice of chunks: "ranks" is missing, or not a list'),
        ({"ranks": [1]}, 'is not a choice of chunks: "host" is missing, or not a text'),
        ({"layers": True}, 'is not a choice of chunks: "layers" is missing, or not a whole number'),
        ({"lengths": [3, 3]}, "is not a choice of chunks: lengths must be whole numbers above 0 whose sum is 5"),
        ({"lengths": [5, 0]}, "is not a choice of chunks: lengths must be whole numbers above 0 whose sum is 5"),
        ({"lengths": [4.0, 1]}, "is not a choice of chunks: lengths must be whole numbers above 0 whose sum is 5"),
    ],
)
def test_a_damaged_file_is_refused_with_a_remedy(tmp_path: Path, damage: dict[str, object], message: str) -> None:
    path = tmp_path / "choice.json"
    write(path)
    path.write_text(json.dumps(json.loads(path.read_text()) | damage))
    for error in on_ranks(path, SETTING, ChoiceFile.read):
        assert type(error) is FileError
        assert str(error).startswith(f"{path}: {message}")
        assert str(error).endswith("; delete it, and the next run searches and writes it anew")


@pytest.mark.parametrize("content", [b"", b'{"format": 1, ', b"\xff\xfe", b"[" * 100_000, b"3"])
def test_what_is_no_json_of_ours_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "choice.json"
    path.write_bytes(content)
    for error in on_ranks(path, SETTING, ChoiceFile.read):
        assert type(error) is FileError
        assert str(error).startswith(f"{path}: is not a choice of chunks: ")


def test_places_where_no_file_can_be(tmp_path: Path) -> None:
    """A missing folder is told before the search."""
    path = tmp_path / "missing" / "choice.json"
    folder = f'there is no folder "{path.parent}"'
    for error in on_ranks(path, SETTING, ChoiceFile.read):
        assert type(error) is FileError
        assert str(error) == f"{path}: cannot be written when the search has ended: {folder}"
    for error in on_ranks(path, SETTING, lambda file: file.write((5,), [])):
        assert type(error) is WriteError
        assert str(error) == f"{path}: could not be written: {folder}"
    for error in on_ranks(tmp_path, SETTING, ChoiceFile.read):
        assert type(error) is FileError
        assert str(error) == f"{tmp_path}: cannot be read: Is a directory"


def test_the_setting_of_a_run() -> None:
    graph = graph_of(NET)

    def setting(comm: Communicator) -> Setting:
        return Setting.of(solver_of(""), graph, 3, ProcessGrid.regular(comm, 1, 2), CPU)

    (seen, other) = run_ranks(2, setting)
    assert seen == other
    assert (seen.net, seen.layers, seen.grid) == (net_digest(graph), 3, "2 ranks = 1 replica × 2 shards")
    assert len(seen.ranks) == 2
    assert not list(seen.differences(other))
