"""Reduction and broadcast along a tree, over threads, whose sends wait for their receivers, and serial."""

from __future__ import annotations

import pytest

from bpt.system.comm import tree_collectives as tree
from bpt.system.comm.serial import SerialCommunicator
from tests.support.doubles.thread_ranks import run_ranks
from tests.support.tree_checks import CHECKS, PARENTS, Check

every_check = pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__.removeprefix("check_"))


@pytest.mark.parametrize("size", PARENTS)
def test_who_is_whose_parent(size: int) -> None:
    assert {rank: tree.parent_of(rank) for rank in range(size)} == {0: None, **PARENTS[size]}
    for rank in range(size):
        children = tuple(child for child, parent in PARENTS[size].items() if parent == rank)
        assert tree.children_of(rank, size) == children


@every_check
def test_serial(check: Check) -> None:
    check(SerialCommunicator())


@every_check
@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 7])
@pytest.mark.parametrize("chunk", [tree.CHUNK, 24])
def test_threads(check: Check, size: int, chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    if check.__name__ == "check_trees_of_large_buffers" and chunk < tree.CHUNK:
        chunk = 2**18
    monkeypatch.setattr(tree, "CHUNK", chunk)
    run_ranks(size, check)
