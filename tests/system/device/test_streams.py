"""Streams and events of a CPU: order, errors, memory, and the end of their threads."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from collections.abc import Callable, Iterator

import pytest
import torch

from bpt.base.errors import RunError
from bpt.system.device import CPU, Stream, StreamEvent, computing_stream, new_stream

MINUTE = 60.0


def here() -> threading.Thread:
    return threading.current_thread()


def fail(error: BaseException) -> Callable[[], None]:
    def work() -> None:
        raise error

    return work


def raised_by(act: Callable[[], None]) -> BaseException | None:
    try:
        act()
    except BaseException as error:
        return error
    return None


class Gate:
    """Work that ends when it is allowed to."""

    def __init__(self) -> None:
        self.begun, self.open = threading.Event(), threading.Event()

    def __call__(self) -> None:
        self.begun.set()
        assert self.open.wait(MINUTE)


@pytest.fixture
def started() -> Iterator[Callable[[], list[threading.Thread]]]:
    """The threads that run and did not when the test began."""
    before = set(threading.enumerate())
    yield lambda: [thread for thread in threading.enumerate() if thread not in before]
    for thread in set(threading.enumerate()) - before:
        thread.join(0.05)
        if thread.is_alive():  # an error holds its stream
            gc.collect()
        thread.join(MINUTE)
        assert not thread.is_alive()  # every stream has been closed or forgotten


Started = Callable[[], list[threading.Thread]]


# --- order --------------------------------------------------------------------


def test_work_is_done_in_order_by_one_other_thread(started: Started) -> None:
    stream = new_stream(CPU, "D2H")
    done: list[tuple[int, threading.Thread]] = []
    for number in range(100):
        stream.run(lambda number=number: done.append((number, here())))  # type: ignore[misc]
    stream.record().wait()
    assert [number for number, _ in done] == list(range(100))
    (thread,) = {thread for _, thread in done}
    assert [thread] == started()
    assert thread.daemon  # must not keep the process alive
    assert thread.name == f"D2H of {here().name}"


def test_an_event_is_reached_when_what_came_before_it_is_done(started: Started) -> None:
    stream = new_stream(CPU, "D2H")
    first, second = Gate(), Gate()
    stream.run(first)
    after_first = stream.record()
    stream.run(second)
    after_second = stream.record()
    assert first.begun.wait(MINUTE)  # run and record did not wait
    assert not after_first.done()
    first.open.set()
    after_first.wait()
    assert second.begun.wait(MINUTE)
    assert after_first.done()
    assert not after_second.done()
    second.open.set()
    after_second.wait()
    assert after_second.done()
    after_first.wait()  # as often as one likes


def test_submit_is_run_and_record_in_one(started: Started) -> None:
    stream, gate = new_stream(CPU, "D2H"), Gate()
    first = stream.submit(gate)
    second = stream.submit(lambda: None)
    assert gate.begun.wait(MINUTE)  # submit did not wait
    assert not first.done()
    assert not second.done()
    gate.open.set()
    second.wait()
    assert first.done()
    error = KeyError(1)
    assert raised_by(stream.submit(fail(error)).wait) is error
    null, done = computing_stream(CPU), []
    assert null.submit(lambda: done.append(here())).done()
    assert done == [here()]


def test_a_stream_goes_on_after_the_event_of_another_one(started: Started) -> None:
    first, second = new_stream(CPU, "first"), new_stream(CPU, "second")
    gate, done = Gate(), []
    first.run(gate)
    first.run(lambda: done.append("first"))
    second.run(lambda: done.append("before"))
    before = second.record()
    second.after(first.record())
    second.run(lambda: done.append("after"))
    end = second.record()
    before.wait()  # what was submitted before does not wait
    assert gate.begun.wait(MINUTE)
    assert not end.done()
    gate.open.set()
    end.wait()
    assert done == ["before", "first", "after"]


def test_after_an_event_that_is_reached(started: Started) -> None:
    first, second = new_stream(CPU, "first"), new_stream(CPU, "second")
    done: list[int] = []
    first.run(lambda: done.append(1))
    event = first.record()
    event.wait()
    first.close()
    second.after(event)
    second.run(lambda: done.append(2))
    second.record().wait()
    assert done == [1, 2]


def test_after_an_event_of_its_own(started: Started) -> None:
    stream = new_stream(CPU, "D2H")
    done: list[int] = []
    stream.run(lambda: done.append(1))
    stream.after(stream.record())
    stream.run(lambda: done.append(2))
    stream.record().wait()
    assert done == [1, 2]


def test_after_an_event_of_some_other_kind(started: Started) -> None:
    class Mine:
        def __init__(self) -> None:
            self.gate = Gate()

        def wait(self) -> None:
            self.gate()

        def done(self) -> bool:
            return self.gate.open.is_set()

    event: StreamEvent = Mine()
    stream, done = new_stream(CPU, "D2H"), []
    stream.after(event)
    stream.run(lambda: done.append(1))
    assert event.gate.begun.wait(MINUTE)  # type: ignore[attr-defined]
    assert done == []
    event.gate.open.set()  # type: ignore[attr-defined]
    stream.record().wait()
    assert done == [1]
    computing_stream(CPU).after(event)


def test_many_threads_may_submit(started: Started) -> None:
    stream, done = new_stream(CPU, "D2H"), []

    def submit(name: int) -> None:
        for number in range(200):
            stream.run(lambda: done.append((name, number)))  # noqa: B023
            stream.record().wait()

    threads = [threading.Thread(target=submit, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(MINUTE)
    for name in range(4):
        assert [number for other, number in done if other == name] == list(range(200))


# --- errors -------------------------------------------------------------------


def test_what_work_raised_is_raised_by_all_events_recorded_since(started: Started) -> None:
    stream, error, done = new_stream(CPU, "D2H"), KeyError("gradient"), []
    gate = Gate()
    stream.run(gate)
    before = stream.record()
    stream.run(fail(error))
    between = stream.record()  # recorded before it failed, reached after
    stream.run(lambda: done.append(1))
    stream.after(before)
    gate.open.set()
    later = stream.record()
    for event in (between, later, stream.record(), between):
        assert raised_by(event.wait) is error
        assert event.done()
    before.wait()
    stream.run(lambda: done.append(2))  # it stays failed
    assert raised_by(stream.record().wait) is error
    assert done == []


def test_a_failed_stream_has_no_thread(started: Started) -> None:
    stream = new_stream(CPU, "D2H")
    stream.run(fail(KeyError("gradient")))
    with pytest.raises(KeyError):
        stream.record().wait()
    for thread in started():
        thread.join(MINUTE)
    stream.run(lambda: None)
    stream.after(stream.record())
    assert started() == []
    stream.close()
    with pytest.raises(KeyError):
        stream.record().wait()


def test_a_failure_spreads_to_streams_that_go_on_after_it(started: Started) -> None:
    first, second, third = (new_stream(CPU, name) for name in "abc")
    error, done = ValueError("copy"), []
    third.run(lambda: done.append("third"))
    first.run(fail(error))
    second.run(lambda: done.append("second"))
    sound = second.record()
    second.after(first.record())
    second.run(lambda: done.append("never"))
    third.after(sound)
    third.run(lambda: done.append("third"))
    third.record().wait()
    assert raised_by(second.record().wait) is error
    assert raised_by(lambda: computing_stream(CPU).after(second.record())) is error
    assert sorted(done) == ["second", "third", "third"]


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), StopIteration(1)])
def test_nothing_that_work_raises_is_lost(error: BaseException, started: Started) -> None:
    stream = new_stream(CPU, "D2H")
    stream.run(fail(error))
    assert raised_by(stream.record().wait) is error


# --- the end ------------------------------------------------------------------


def test_no_thread_before_there_is_work(started: Started) -> None:
    stream = new_stream(CPU, "D2H")
    event = stream.record()
    assert event.done()
    event.wait()
    assert started() == []
    stream.after(event)
    assert len(started()) == 1
    stream.close()


def test_close_ends_the_thread(started: Started) -> None:
    stream = new_stream(CPU, "D2H")
    stream.run(lambda: None)
    event = stream.record()
    event.wait()
    (thread,) = started()
    stream.close()
    thread.join(MINUTE)
    assert not thread.is_alive()
    event.wait()  # it was reached
    stream.close()


def test_close_does_not_wait_but_drops_what_has_not_begun(started: Started) -> None:
    first, second = new_stream(CPU, "D2H"), new_stream(CPU, "H2D")
    gate, done = Gate(), []
    first.run(gate)
    before = first.record()
    first.run(lambda: done.append(1))
    behind = first.record()
    second.after(behind)
    second.run(lambda: done.append(2))
    assert gate.begun.wait(MINUTE)
    first.close()
    assert not before.done()  # it is still at it
    gate.open.set()
    for event in (before, behind, first.record(), second.record()):
        with pytest.raises(RunError, match=f"^D2H of {here().name}: closed before its work was done$"):
            event.wait()
    assert done == []


@pytest.mark.parametrize("used", [False, True])
def test_a_closed_stream_does_nothing(used: bool, started: Started) -> None:
    stream, done = new_stream(CPU, "D2H"), []
    if used:
        stream.run(lambda: done.append(1))
        stream.record().wait()
    stream.close()
    stream.run(lambda: done.append(2))
    with pytest.raises(RunError, match="closed"):
        stream.record().wait()
    assert done == [1] * used


def test_a_forgotten_stream_ends_its_thread(started: Started) -> None:
    stream = new_stream(CPU, "D2H")
    stream.run(lambda: None)
    event = stream.record()
    event.wait()
    (thread,) = started()
    del stream
    gc.collect()
    thread.join(MINUTE)
    assert not thread.is_alive()
    event.wait()


def test_a_failed_stream_can_be_forgotten_though_its_error_knows_it(started: Started) -> None:
    stream = new_stream(CPU, "D2H")

    def work(stream: Stream = stream) -> None:
        raise KeyError(stream)  # in the error, and in its traceback

    stream.run(work)
    with pytest.raises(KeyError):
        stream.record().wait()
    seen = weakref.ref(stream)
    for thread in started():
        thread.join(MINUTE)
    del stream, work
    gc.collect()
    assert seen() is None


# --- cost ---------------------------------------------------------------------


def test_work_that_is_done_is_forgotten(started: Started) -> None:
    stream = new_stream(CPU, "D2H")
    held, event = [], None
    for _ in range(3):
        memory = torch.zeros(10)
        held.append(weakref.ref(memory))
        stream.run(lambda memory=memory: None)  # type: ignore[misc]
        event = stream.record()
        event.wait()
        del memory
        assert held[-1]() is None
    assert event is not None


def test_the_last_work_is_forgotten_too(started: Started) -> None:
    stream, freed = new_stream(CPU, "D2H"), threading.Event()
    memory = torch.zeros(10)
    weakref.finalize(memory, freed.set)
    stream.run(lambda memory=memory: None)  # type: ignore[misc]
    del memory
    assert freed.wait(MINUTE)


def test_who_waits_does_not_compute(started: Started) -> None:
    first, second, idle = (new_stream(CPU, name) for name in "abc")
    gate = Gate()
    idle.run(lambda: None)
    idle.record().wait()
    first.run(gate)
    second.after(first.record())
    assert gate.begun.wait(MINUTE)
    clocks = [time.pthread_getcpuclockid(thread.ident) for thread in started() if thread.ident]
    assert len(clocks) == 3
    before = [time.clock_gettime(clock) for clock in clocks]
    end = time.thread_time() + 0.05
    while time.thread_time() < end:  # who asks again and again gets a share of this
        pass
    used = [time.clock_gettime(clock) - start for clock, start in zip(clocks, before, strict=True)]
    gate.open.set()
    assert max(used) < 0.005


# --- settings of torch --------------------------------------------------------


def test_torch_is_set_as_elsewhere_but_records_no_gradients(started: Started) -> None:
    threads, dtype = torch.get_num_threads(), torch.get_default_dtype()
    weight = torch.ones(3, requires_grad=True)
    seen: list[object] = []

    def work() -> None:
        seen.extend([torch.get_num_threads(), torch.get_default_dtype(), torch.is_inference_mode_enabled()])
        weight.mul_(2)  # not allowed where gradients are recorded
        seen.append((weight + 1).requires_grad)

    try:
        torch.set_num_threads(3)
        torch.set_default_dtype(torch.float64)
        stream = new_stream(CPU, "D2H")
        stream.run(work)
        stream.record().wait()
    finally:
        torch.set_num_threads(threads)
        torch.set_default_dtype(dtype)
    assert seen == [3, torch.float64, False, False]
    assert torch.is_grad_enabled()
    assert weight.tolist() == [2, 2, 2]


# --- the null stream ----------------------------------------------------------


def test_the_null_stream_is_the_caller(started: Started) -> None:
    stream, done = computing_stream(CPU), []
    stream.run(lambda: done.append((here(), torch.is_grad_enabled())))
    assert done == [(here(), True)]
    event = stream.record()
    assert event.done()
    event.wait()
    error = KeyError(1)
    assert raised_by(lambda: stream.run(fail(error))) is error
    stream.record().wait()  # the caller knows
    stream.close()
    assert started() == []


def test_the_null_stream_waits_for_events(started: Started) -> None:
    stream, gate, done = new_stream(CPU, "D2H"), Gate(), []
    stream.run(gate)
    stream.run(lambda: done.append(1))
    threading.Timer(0.02, gate.open.set).start()
    computing_stream(CPU).after(stream.record())
    assert done == [1]
