"""Threads that prepare batches."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from bpt.data.prefetch import Prefetcher, Workers, how_many


@pytest.fixture(params=[1, 2, 5])
def some(request: pytest.FixtureRequest) -> Iterator[Workers]:
    made = Workers(request.param)
    yield made
    made.close()


def test_results_in_the_order_of_the_tasks(some: Workers) -> None:
    assert some.run(partial(pow, number, 2) for number in range(50)) == [number**2 for number in range(50)]
    assert some.run([]) == []


def test_tasks_run_at_the_same_time() -> None:
    both = threading.Barrier(2, timeout=60)
    some = Workers(2)
    assert sorted(some.run([both.wait, both.wait])) == [0, 1]
    some.close()


def test_the_first_error_in_their_order(some: Workers) -> None:
    def task(number: int) -> int:
        if number in (3, 7):
            raise KeyError(number)
        return number

    with pytest.raises(KeyError, match="3"):
        some.run(partial(task, number) for number in range(10))
    assert some.run(partial(task, number) for number in range(3)) == [0, 1, 2]


def test_an_error_of_the_iterator(some: Workers) -> None:
    def tasks() -> Iterator[partial[int]]:
        yield partial(int, "1")
        raise KeyError("record 1")

    with pytest.raises(KeyError, match="record 1"):
        some.run(tasks())


def test_no_thread_before_the_first_task_or_after_close() -> None:
    before = threading.active_count()
    some = Workers(3)
    assert threading.active_count() == before
    some.run([partial(int, "1")] * 9)
    assert before < threading.active_count() <= before + 3
    some.close()
    some.close()
    assert threading.active_count() == before


def test_how_many(monkeypatch: pytest.MonkeyPatch) -> None:
    assert how_many(5) == 5
    for cores, wanted in ((2, 2), (64, 8)):
        monkeypatch.setattr(os, "sched_getaffinity", lambda pid, cores=cores: set(range(cores)))
        assert how_many(0) == wanted


def test_the_program_ends_while_they_work() -> None:
    program = (
        "from functools import partial\n"
        "from bpt.data.prefetch import Prefetcher\n"
        "from bpt.data.prefetch import Workers\n"
        "some = Workers(4)\n"
        "prefetcher = Prefetcher(lambda position: some.run([partial(sum, range(100000))] * 50), 1, 4)\n"
        "prefetcher.next()\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.fixture
def started() -> Callable[[], int]:
    """How many threads run that did not when the test began."""
    before = set(threading.enumerate())
    return lambda: len(set(threading.enumerate()) - before)


def test_hands_out_in_order_and_counts_what_it_handed_out() -> None:
    prefetcher = Prefetcher(lambda position: position * 10, step=4, depth=3)
    assert prefetcher.position == 0
    assert [prefetcher.next() for _ in range(5)] == [0, 40, 80, 120, 160]
    assert prefetcher.position == 20
    prefetcher.close()
    assert prefetcher.position == 20


def test_prepares_depth_batches_ahead_and_no_more() -> None:
    loaded = []
    third = threading.Event()

    def load(position: int) -> int:
        loaded.append((position, threading.current_thread().name))
        if position == 2:
            third.set()
        return position

    prefetcher = Prefetcher(load, step=1, depth=2)
    prefetcher.next()
    assert third.wait(60)  # one handed out, two ahead
    prefetcher.close()
    assert loaded == [(0, "bpt prefetch"), (1, "bpt prefetch"), (2, "bpt prefetch")]


def test_setting_the_position_discards_what_was_read_ahead() -> None:
    prefetcher = Prefetcher(lambda position: position, step=2, depth=4)
    assert [prefetcher.next(), prefetcher.next()] == [0, 2]
    prefetcher.position = 100
    assert [prefetcher.next(), prefetcher.next()] == [100, 102]
    prefetcher.position = 2
    assert prefetcher.next() == 2
    prefetcher.close()


def test_an_exception_arrives_in_its_turn_as_itself(started: Callable[[], int]) -> None:
    error = KeyError("record")
    failing = True

    def load(position: int) -> int:
        if position == 2 and failing:
            raise error
        return position

    prefetcher = Prefetcher(load, step=1, depth=4)
    assert [prefetcher.next(), prefetcher.next()] == [0, 1]
    with pytest.raises(KeyError) as caught:
        prefetcher.next()
    assert caught.value is error
    assert prefetcher.position == 2
    assert started() == 0
    failing = False
    assert prefetcher.next() == 2  # it can be asked again
    prefetcher.close()


def test_no_thread_before_the_first_batch_or_after_close(started: Callable[[], int]) -> None:
    prefetcher = Prefetcher(lambda position: position, step=1, depth=1)
    assert started() == 0
    prefetcher.close()
    prefetcher.next()
    assert started() == 1
    prefetcher.close()
    prefetcher.close()
    assert started() == 0


def test_a_forgotten_prefetcher_ends_its_thread(started: Callable[[], int]) -> None:
    prefetcher = Prefetcher(lambda position: position, step=1, depth=1)
    prefetcher.next()
    del prefetcher
    gc.collect()
    assert started() == 0


def test_the_program_ends_without_close() -> None:
    program = (
        "from bpt.data.prefetch import Prefetcher\n"
        "prefetcher = Prefetcher(lambda position: bytes(1000), 1, 4)\n"
        "prefetcher.next()\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
