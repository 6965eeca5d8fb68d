"""Runs and pieces of buffers; and waiting for the requests that move them."""

from __future__ import annotations

import gc
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from bpt.system.comm import cores, pieces
from bpt.system.comm.pieces import Transfers, flat, is_long, runs


def test_runs_are_views_in_order() -> None:
    whole = np.arange(6).reshape(2, 3)
    first, none, last = runs(whole, [2, 0, 4])
    assert_array_equal(first, [0, 1])
    assert none.size == 0
    assert_array_equal(last, [2, 3, 4, 5])
    last[0] = 9
    assert whole[0, 2] == 9
    with pytest.raises(AssertionError):
        runs(whole, [2, 3])


def test_what_has_gaps_has_no_flat_view() -> None:
    with pytest.raises(AssertionError):
        flat(np.zeros((4, 4))[:, 1])


@pytest.mark.parametrize(
    ("piece", "sizes"), [(40, [5]), (39, [4, 1]), (16, [2, 2, 1]), (8, [1] * 5), (3, [1] * 5)], ids=str
)
def test_pieces_are_as_long_as_they_may_be(piece: int, sizes: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "PIECE", piece)
    found = list(pieces.pieces(np.arange(5.0)))
    assert [part.size for part in found] == sizes
    assert_array_equal(np.concatenate(found), np.arange(5.0))
    assert [part.size for part in pieces.pieces(np.zeros(0))] == [0]


def test_a_message_is_long_when_its_runs_together_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "PIECE", 40)
    assert not is_long([2, 3], np.dtype(np.float64))
    assert is_long([2, 3, 1], np.dtype(np.float64))


class Late:
    """Done at the third look."""

    def __init__(self) -> None:
        self.looks = 0
        self.waited = False

    def Test(self) -> bool:  # noqa: N802
        self.looks += 1
        return self.looks >= 3

    def Wait(self) -> None:  # noqa: N802
        self.waited = True


class Broken:
    """Fails once; then it is done, as MPI's requests are."""

    def __init__(self) -> None:
        self.looks = 0

    def Test(self) -> bool:  # noqa: N802
        self.looks += 1
        if self.looks == 1:
            raise OSError("broken")
        return True

    def Wait(self) -> None:  # noqa: N802
        self.Test()


@pytest.mark.parametrize("longest_sleep", [5e-4, 0.0])
def test_a_request_that_has_failed_fails_again(longest_sleep: float) -> None:
    request = Transfers([Late(), Broken()], longest_sleep)
    assert not request.Test()
    for call in (request.Wait, request.Wait, request.Test, request.Test):
        with pytest.raises(OSError, match="broken"):
            call()


@pytest.mark.parametrize("patient", [True, False])
def test_only_the_impatient_wait_in_the_library(patient: bool) -> None:
    requests = [Late(), Late()]
    Transfers(requests, 5e-4 * patient).Wait()
    assert [request.waited for request in requests] == [not patient] * 2
    assert [request.looks for request in requests] == [3 if patient else 0] * 2


@dataclass
class Clock:
    """A clock that only sleeps and looks at requests move."""

    now: float = 0.0

    def perf_counter(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@dataclass
class Arriving:
    """Done at a moment; a look takes 10 µs."""

    clock: Clock
    moment: float
    looks: int = 0

    def Test(self) -> bool:  # noqa: N802
        self.looks += 1
        self.clock.sleep(1e-5)
        return self.clock.now >= self.moment

    Wait = Test


def test_all_ranks_of_a_core_together_look_as_often_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a wait of 8 s, a rank looks every longest sleep, beside some looks at the start: 8 / 5e-4 = 16000."""
    monkeypatch.setattr(cores, "allowed_cpus", lambda: frozenset({0}))
    monkeypatch.setattr(cores, "cpu_time", lambda: math.inf)
    looks = {}
    for ranks in (2, 8, 64):
        clock = Clock()
        monkeypatch.setattr(pieces, "time", clock)
        request = Arriving(clock, 8.0)
        Transfers([request], cores.longest_sleep(ranks)).Wait()
        looks[ranks] = request.looks
        assert clock.now - 8.0 <= cores.longest_sleep(ranks) + 1e-5
    assert looks[2] == pytest.approx(16000, rel=0.03)
    assert {ranks: looks[ranks] * ranks for ranks in looks} == pytest.approx(dict.fromkeys(looks, 32000), rel=0.15)


def test_a_wait_takes_an_eighth_longer_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    for moment in (1e-3, 1e-2, 1e-1):
        clock = Clock()
        monkeypatch.setattr(pieces, "time", clock)
        Transfers([Arriving(clock, moment)], longest_sleep=1.0).Wait()
        assert clock.now <= moment * 9 / 8 + 1e-5


def test_what_is_abandoned_is_kept_until_it_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rank that is lost ends a collective while others still send what it was to receive."""
    monkeypatch.setattr(pieces, "_abandoned", [])
    requests: list[Any] = [Late(), Broken(), Late()]
    forgotten, failed, done = (Transfers([request]) for request in requests)
    with pytest.raises(OSError, match="broken"):
        failed.Wait()
    done.Wait()
    del forgotten, failed, done
    gc.collect()

    def kept() -> list[bool]:
        return [any(request in of_one for of_one in pieces._abandoned) for request in requests]

    assert kept() == [True, True, False]
    for expected in ([True, False, False], [True, False, False], [False, False, False]):  # it is done at the third look
        pieces.drop_finished()
        assert kept() == expected
