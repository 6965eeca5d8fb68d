"""Workers: the same results and errors whatever their number, and threads that end."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial

import pytest

from bpt.data import workers
from bpt.data.workers import Workers, how_many


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
        monkeypatch.setattr(workers.os, "sched_getaffinity", lambda pid, cores=cores: set(range(cores)))
        assert how_many(0) == wanted


def test_the_program_ends_while_they_work() -> None:
    program = (
        "from functools import partial\n"
        "from bpt.data.prefetch import Prefetcher\n"
        "from bpt.data.workers import Workers\n"
        "some = Workers(4)\n"
        "prefetcher = Prefetcher(lambda position: some.run([partial(sum, range(100000))] * 50), 1, 4)\n"
        "prefetcher.next()\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
