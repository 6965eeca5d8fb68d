"""Local updates by speed: how much a worker trains between two submissions (``local_updates: BY_SPEED``).

They are the dynamic local updates of asynchronous local SGD (Liu et al. 2024, arXiv 2401.09135): a slow worker trains
fewer samples, so that all workers submit at about the same moment, and no change is much staler than the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from bpt.parallel.outer.worker_table import WorkerRecord, WorkerState

_WORKS = WorkerState.TRAINING, WorkerState.SUBMITTED


def submits_by_speed(worker: WorkerRecord, workers: Sequence[WorkerRecord], local_epochs: int) -> Fraction | None:
    """Return the passes after which a worker submits next; ``None`` if speeds are not known yet.

    The worker whose pass is shortest trains ``local_epochs`` passes. Each of the others trains as many samples as it
    can in that time: at least one, and at most ``local_epochs`` passes.
    """
    shortest, own, samples = _shortest_pass(workers), worker.seconds_per_sample(), worker.all_samples
    if shortest is None or own is None or not samples:
        return None
    trains = max(1, round(local_epochs * shortest / own))
    return worker.passes + Fraction(min(trains, local_epochs * samples), samples)


def _shortest_pass(workers: Sequence[WorkerRecord]) -> float | None:
    """Return the least seconds that a worker takes for a pass; ``None`` if no worker has been timed."""
    own = [each for each in workers if each.state in _WORKS and each.all_samples]
    times = [(each.seconds_per_sample() or 0.0) * each.all_samples for each in own]
    return min((seconds for seconds in times if seconds), default=None)
