"""When a worker submits under ``local_updates: BY_SPEED``, by hand."""

from __future__ import annotations

from fractions import Fraction

import pytest

from bpt.parallel.outer.local_updates import submits_by_speed
from bpt.parallel.outer.worker_table import WorkerRecord, WorkerState


def worker(samples: int, seconds: float | None, passes: int = 2) -> WorkerRecord:
    """A worker that has taken so many seconds for a sample."""
    return WorkerRecord(WorkerState.TRAINING, Fraction(passes), samples=samples, time=seconds)


@pytest.mark.parametrize(
    ("own", "epochs", "expected"),
    [
        (worker(100, 0.01), 1, 3),  # its pass is the shortest, 1 second
        (worker(100, 0.04), 1, Fraction(9, 4)),  # 25 samples in this second
        (worker(100, 0.04), 2, Fraction(5, 2)),
        (worker(10, 9.0), 1, Fraction(21, 10)),  # one sample at least
        (worker(50, None), 1, None),
        (worker(0, 0.01), 1, None),
    ],
)
def test_others_train_as_long_as_the_shortest_pass_takes(own: WorkerRecord, epochs: int, expected: object) -> None:
    others = [worker(100, 0.01), worker(300, 0.02), WorkerRecord(WorkerState.LOST, samples=1, time=0.001)]
    assert submits_by_speed(own, [own, *others], epochs) == expected


def test_nobody_has_been_timed() -> None:
    own = worker(10, None)
    assert submits_by_speed(own, [own, worker(10, None)], 1) is None
