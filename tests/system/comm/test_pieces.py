"""Runs and pieces of buffers; and waiting for the requests that move them."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from bpt.system.comm import pieces
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


@pytest.mark.parametrize("patient", [True, False])
def test_a_request_that_has_failed_fails_again(patient: bool) -> None:
    request = Transfers([Late(), Broken()], patient)
    assert not request.Test()
    for call in (request.Wait, request.Wait, request.Test, request.Test):
        with pytest.raises(OSError, match="broken"):
            call()


@pytest.mark.parametrize("patient", [True, False])
def test_only_the_impatient_wait_in_the_library(patient: bool) -> None:
    requests = [Late(), Late()]
    Transfers(requests, patient).Wait()
    assert [request.waited for request in requests] == [not patient] * 2
    assert [request.looks for request in requests] == [3 if patient else 0] * 2


def test_what_is_abandoned_is_kept_until_it_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rank that is lost ends a collective while others still send what it was to receive."""
    monkeypatch.setattr(pieces, "_abandoned", [])
    requests: list[Any] = [Late(), Broken(), Late()]
    forgotten, failed, done = (Transfers([request], patient=False) for request in requests)
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
