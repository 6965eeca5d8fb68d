"""CommThread: order, errors, waiting, and the end of its thread."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable

import pytest

from bpt.engine.instructions import Backward, ExchangeGradients
from bpt.system.comm.comm_thread import CommThread
from bpt.system.comm.serial import SerialCommunicator
from tests.support.doubles.seen import Seen


class Two(SerialCommunicator):
    """Says that it has two ranks; the work of these tests does not communicate."""

    def __init__(self) -> None:
        super().__init__()
        self.size = 2


def here() -> threading.Thread:
    return threading.current_thread()


@pytest.fixture
def started() -> Callable[[], int]:
    """How many threads run that did not when the test began."""
    before = set(threading.enumerate())
    return lambda: len(set(threading.enumerate()) - before)


def test_work_is_done_in_order_by_one_other_thread() -> None:
    comm_thread = CommThread(Two())
    done: list[tuple[int, threading.Thread]] = []
    for number in range(100):
        comm_thread.submit(lambda number=number: done.append((number, here())), ExchangeGradients(0))  # type: ignore[misc]
    comm_thread.wait()
    assert [number for number, _ in done] == list(range(100))
    (thread,) = {thread for _, thread in done}
    assert thread is not here()
    assert thread.daemon
    comm_thread.close()


def test_submit_does_not_wait_and_wait_does() -> None:
    comm_thread = CommThread(Two())
    go = threading.Event()
    done: list[int] = []

    def work() -> None:
        assert go.wait(60)
        done.append(1)

    comm_thread.submit(work, ExchangeGradients(0))
    assert done == []
    assert comm_thread.exposed == 0
    threading.Timer(0.05, go.set).start()
    start = time.perf_counter()
    comm_thread.wait()
    seconds = time.perf_counter() - start
    assert done == [1]
    assert 0 < comm_thread.exposed <= seconds
    comm_thread.close()


def test_wait_for_a_part_of_the_work() -> None:
    comm_thread = CommThread(Two())
    go = threading.Event()
    done: list[int] = []
    first = comm_thread.submit(lambda: done.append(1), ExchangeGradients(0))
    last = comm_thread.submit(lambda: done.append(2) if go.wait(60) else None, ExchangeGradients(1))
    comm_thread.wait(first)
    assert done == [1]
    assert not last.done()
    go.set()
    comm_thread.wait(last)
    assert done == [1, 2]
    comm_thread.close()


def test_work_belongs_to_its_instruction() -> None:
    comm = Two()
    comm_thread = CommThread(comm)
    seen = Seen(comm)
    with comm.events.during(Backward(3)):
        comm_thread.submit(comm.Barrier, ExchangeGradients(0))
        comm_thread.submit(comm.Barrier, ExchangeGradients(1))
        comm_thread.wait()
        assert comm.events.what == Backward(3)
    assert list(seen.calls()) == [("X0", "Barrier"), ("X1", "Barrier")]
    comm_thread.close()


def test_wait_raises_what_work_raised_and_what_came_after_it_is_dropped() -> None:
    comm_thread = CommThread(Two())
    error = KeyError("gradient")
    done = []

    def fail() -> None:
        raise error

    comm_thread.submit(lambda: done.append(1), ExchangeGradients(0))
    comm_thread.submit(fail, ExchangeGradients(1))
    comm_thread.submit(lambda: done.append(2), ExchangeGradients(2))
    with pytest.raises(KeyError) as caught:
        comm_thread.wait()
    assert caught.value is error
    assert done == [1]
    comm_thread.submit(lambda: done.append(3), ExchangeGradients(3))  # it can be used again
    comm_thread.wait()
    assert done == [1, 3]
    comm_thread.close()


def test_a_rank_that_is_alone_does_the_work_itself(started: Callable[[], int]) -> None:
    comm = SerialCommunicator()
    Seen(comm)
    comm_thread = CommThread(comm)
    done = []
    comm_thread.submit(lambda: done.append((here(), comm.events.what)), ExchangeGradients(0))
    assert done == [(here(), ExchangeGradients(0))]
    comm_thread.wait()
    comm_thread.close()
    assert started() == 0


def test_so_does_one_whose_library_allows_one_thread_only(started: Callable[[], int]) -> None:
    comm = Two()
    comm.concurrent = False
    comm_thread = CommThread(comm)
    done = []
    comm_thread.submit(lambda: done.append(here()), ExchangeGradients(0))
    assert done == [here()]
    with pytest.raises(ZeroDivisionError):
        comm_thread.submit(lambda: print(1 / 0), ExchangeGradients(0))
    assert started() == 0


def test_no_thread_before_the_first_work_or_after_close(started: Callable[[], int]) -> None:
    comm_thread = CommThread(Two())
    comm_thread.wait()
    assert started() == 0
    comm_thread.submit(lambda: None, ExchangeGradients(0))
    assert started() == 1
    comm_thread.wait()
    *_, thread = [thread for thread in threading.enumerate() if thread.name.startswith("comm_thread of")]
    comm_thread.close()
    thread.join(60)
    assert started() == 0
    comm_thread.close()


def test_a_forgotten_comm_thread_ends_its_thread(started: Callable[[], int]) -> None:
    comm_thread = CommThread(Two())
    comm_thread.submit(lambda: None, ExchangeGradients(0))
    comm_thread.wait()
    *_, thread = [thread for thread in threading.enumerate() if thread.name.startswith("comm_thread of")]
    del comm_thread
    gc.collect()
    thread.join(60)
    assert started() == 0


def test_close_does_not_wait_for_a_call_that_never_ends(started: Callable[[], int]) -> None:
    comm_thread = CommThread(Two())
    go, begun, done = threading.Event(), threading.Event(), []

    def call() -> None:
        begun.set()
        go.wait(60)

    comm_thread.submit(call, ExchangeGradients(0))
    comm_thread.submit(lambda: done.append(1), ExchangeGradients(0))
    begun.wait(60)
    *_, thread = [thread for thread in threading.enumerate() if thread.name.startswith("comm_thread of")]
    comm_thread.close()
    assert thread.is_alive()
    go.set()
    thread.join(60)
    assert done == []
