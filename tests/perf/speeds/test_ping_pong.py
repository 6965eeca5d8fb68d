"""Measuring the links between ranks, and which of them are measured."""

from __future__ import annotations

import math

import pytest

from bpt.perf.speeds.ping_pong import MeasuredLinks, measure, pairs, shared_by
from bpt.system.comm.serial import SerialCommunicator
from tests.support.doubles.thread_ranks import run_ranks


def test_a_measurement() -> None:
    first, *others = run_ranks(3, lambda world: measure(world, "aab", seconds=0.1))
    assert others == [first] * 2
    assert [(link.one, link.other) for link in first.links] == [(0, 1), (0, 2), (1, 2)]
    for link in first.links:
        assert 0 < link.latency < 1
        assert link.bandwidth > 1e4
    assert first.allreduce > 0


def test_one_rank() -> None:
    assert measure(SerialCommunicator(), "a") == MeasuredLinks((), 0.0)


@pytest.mark.parametrize(("hosts", "expected"), [
    ("ab", [(0, 1)]),
    ("aaaa", [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)]),
    ("aabbcc", [(0, 1), (0, 2), (0, 4), (2, 4)]),  # first ranks, and two on one host
    ("abcdef", [(0, 1), (0, 2), (0, 3), (0, 4), (0, 5)]),  # too many for each with each
])  # fmt: skip
def test_who_is_measured(hosts: str, expected: list[tuple[int, int]]) -> None:
    assert pairs(hosts) == expected


def test_what_pairs_share_at_once() -> None:
    """Pairs that have a tenth less than alone do not share; at half of it they do."""
    assert shared_by([90.0, 90.0], [100.0, 100.0]) == math.inf
    assert shared_by([50.0, 60.0, 40.0], [100.0, 100.0]) == 150.0
    first, *others = run_ranks(4, lambda world: measure(world, "abcd", seconds=0.05).shared)
    assert others == [first] * 3
    assert first > 1e4
