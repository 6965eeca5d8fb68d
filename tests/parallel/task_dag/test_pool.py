"""Pool: tasks run in threads of their own, each after what it needs; errors reach the caller; nothing hangs."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from functools import partial
from types import FrameType
from typing import Any

import pytest
import torch

from bpt.parallel.task_dag.pool import Pool
from bpt.parallel.task_dag.task_dag import Dispatcher, Task, TaskDag


@pytest.fixture
def pool() -> Iterator[Pool]:
    made = Pool(2)
    yield made
    made.stop()


def test_every_task_runs_once_after_what_it_needs(pool: Pool) -> None:
    tasks = [Task(str(i), 1.0, tuple(sorted({i // 2, i // 3} - {i}))) for i in range(200)]
    done: list[int] = []
    for _ in range(3):
        done.clear()
        timeline = pool.run(TaskDag(tasks), [partial(done.append, index) for index in range(200)])
        assert sorted(done) == list(range(200))
        at = {index: place for place, index in enumerate(done)}
        assert all(at[need] < at[index] for index, task in enumerate(tasks) for need in task.needs)
        assert sorted(event.task for event in timeline.events) == list(range(200))
        assert timeline.waiting >= 0
        assert 0 < timeline.balance <= 1


def test_two_tasks_run_at_the_same_time(pool: Pool) -> None:
    meeting = threading.Barrier(2, timeout=120)  # breaks if the other never comes
    waits: list[Callable[[], Any]] = [meeting.wait, meeting.wait]
    pool.run(TaskDag([Task("a"), Task("b")]), waits)


def test_one_library_thread_in_the_pool_and_as_many_as_before_outside(pool: Pool) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        seen: list[int] = []
        x = torch.ones(4, 3, requires_grad=True)

        def look() -> None:
            with torch.enable_grad():
                (x * 2).sum().backward()
            seen.append(torch.get_num_threads())

        pool.run(TaskDag([Task("a"), Task("b")]), [look, look])
        pool.run(TaskDag([Task("a", pinned=True)]), [look])
        thread = threading.Thread(target=look)
        thread.start()
        thread.join()
        assert seen == [1, 1, 3, 3]
    finally:
        torch.set_num_threads(before)


def test_pinned_tasks_run_in_the_calling_thread(pool: Pool) -> None:
    names: list[str] = []

    def note() -> None:
        names.append(threading.current_thread().name)

    pool.run(TaskDag([Task("a"), Task("b", needs=(0,), pinned=True), Task("c", needs=(1,))]), [note] * 3)
    assert names[1] == threading.current_thread().name
    assert all(name.startswith("task DAG") for name in (names[0], names[2]))


@pytest.mark.parametrize("pinned", [False, True])
def test_an_error_reaches_the_caller_and_what_needs_the_task_never_runs(pool: Pool, pinned: bool) -> None:
    ran: list[str] = []

    def fail() -> None:
        raise ValueError("no")

    dag = TaskDag([Task("a", pinned=pinned), Task("b", needs=(0,)), Task("c", needs=(1,), pinned=True)])
    with pytest.raises(ValueError, match="no"):
        pool.run(dag, [fail, lambda: ran.append("b"), lambda: ran.append("c")])
    assert ran == []
    pool.run(dag, [partial(ran.append, name) for name in "abc"])
    assert ran == ["a", "b", "c"]


def test_of_two_errors_that_of_the_first_task_counts(pool: Pool) -> None:
    meeting = threading.Barrier(2, timeout=120)

    def fail(text: str) -> None:
        meeting.wait()
        raise ValueError(text)

    with pytest.raises(ValueError, match="first"):
        pool.run(TaskDag([Task("a"), Task("b")]), [partial(fail, "first"), partial(fail, "second")])


def test_the_caller_is_told_only_when_all_that_runs_has_ended(pool: Pool) -> None:
    """Else a task could still write to what the caller has gone on to use."""
    failed, ended = threading.Event(), []

    def fail() -> None:
        failed.set()
        raise ValueError("no")

    def last() -> None:
        assert failed.wait(60)
        ended.append(True)

    with pytest.raises(ValueError, match="no"):
        pool.run(TaskDag([Task("a"), Task("b")]), [fail, last])
    assert ended == [True]


def test_nothing_to_run_and_stopping_twice(pool: Pool) -> None:
    assert pool.run(TaskDag([]), []).events == ()
    pool.stop()
    pool.stop()
    ran: list[int] = []
    pool.run(TaskDag([Task("a")]), [lambda: ran.append(1)])
    assert ran == [1]


class StopError(Exception):
    """What a handler of signals raises."""


def test_a_signal_reaches_the_caller_when_all_that_runs_has_ended(pool: Pool) -> None:
    handled, noted, ended = threading.Event(), threading.Event(), []

    def stop(number: int, frame: FrameType | None) -> None:
        if not handled.is_set():
            handled.set()
            raise StopError
        assert frame is not None
        if getattr(frame.f_locals.get("self"), "_errors", None):
            noted.set()

    main = threading.main_thread().ident
    assert main == threading.get_ident()

    def interrupt() -> None:
        # More than once: Python handles a signal that comes just before the caller goes to sleep when it wakes up. And
        # the caller may have the signal, but not yet have come to note it.
        for _ in range(10_000):
            signal.pthread_kill(main, signal.SIGUSR1)
            if noted.wait(1e-3):
                break
        assert noted.is_set()
        ended.append(True)

    before = signal.signal(signal.SIGUSR1, stop)
    try:
        with pytest.raises(StopError):
            pool.run(TaskDag([Task("a"), Task("b", needs=(0,))]), [interrupt, lambda: ended.append(False)])
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert ended == [True]


def test_a_signal_while_the_first_tasks_are_handed_out(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The caller has called one thread and not yet the other when the handler raises."""
    raised, returned, ended = threading.Event(), threading.Event(), []
    give = Dispatcher.next

    def interrupted(self: Dispatcher, lane: int) -> int | None:
        if lane == 1 and not raised.is_set():
            raised.set()
            raise StopError
        return give(self, lane)

    def last() -> None:
        assert raised.wait(60)
        ended.append(not returned.wait(0.1))

    monkeypatch.setattr(Dispatcher, "next", interrupted)
    with pytest.raises(StopError):
        pool.run(TaskDag([Task("a"), Task("b")]), [last, last])
    returned.set()
    assert ended == [True]
