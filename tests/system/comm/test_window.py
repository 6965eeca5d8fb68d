"""Windows: what needs no second rank. What all windows do: see contract/windows.py."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from bpt.system.comm.serial import SerialCommunicator
from bpt.system.comm.window import SLACK, aligned
from tests.support.doubles.seen import Seen


@pytest.mark.parametrize("offset", [0, 1, 63, 64, 65])
@pytest.mark.parametrize("nbytes", [0, 1, 200])
def test_aligned_memory_starts_at_a_line_and_lies_in_what_was_given(offset: int, nbytes: int) -> None:
    whole = np.zeros(offset + nbytes + SLACK, np.uint8)[offset:]
    part = aligned(whole, nbytes)
    assert not nbytes or part.ctypes.data % 64 == 0
    assert part.size == nbytes
    part[...] = 1
    assert whole.sum() == nbytes  # it is the same memory


def test_memory_without_slack_is_a_mistake() -> None:
    whole = np.zeros(1000, np.uint8)
    start = -whole.ctypes.data % 64 + 1  # where the next line is 63 bytes away
    with pytest.raises(AssertionError):
        aligned(whole[start : start + 100], 100)


def test_a_thread_waits_for_another_of_a_rank_that_is_alone() -> None:
    window = SerialCommunicator().Allocate_shared(2)
    ask, answer = window.Shared_query(0)[:1], window.Shared_query(0)[1:]

    def work() -> None:
        window.wait(lambda: bool(ask[0]))
        answer[0] = ask[0] + 1
        window.Sync()

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    assert answer[0] == 0
    ask[0] = 5
    window.Sync()
    window.wait(lambda: bool(answer[0]))
    assert answer[0] == 6
    thread.join(60)


def test_what_done_raises_ends_the_wait_and_is_counted() -> None:
    comm = SerialCommunicator()
    seen = Seen(comm)
    window = comm.Allocate_shared(0)
    with pytest.raises(ZeroDivisionError):
        window.wait(lambda: bool(1 / 0))
    assert seen.calls()["", "wait"].calls == 1


def test_no_part_is_there_after_free() -> None:
    window = SerialCommunicator().Allocate_shared(8)
    window.Free()
    with pytest.raises(IndexError):
        window.Shared_query(0)
