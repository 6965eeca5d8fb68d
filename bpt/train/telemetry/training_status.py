"""TrainingStatus: what is known of a run at a moment, and the lines in which a terminal shows it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from bpt.train.state.best import Best
from bpt.train.telemetry.rank_loads import Scored, as_ms
from bpt.train.telemetry.status_text import bar, clock, short


@dataclass
class TrainingStatus:
    """What is known of a run at a moment.

    Attributes:
        ranks: the number of ranks of the job.
        started: ``time.monotonic()`` when the run began.
        log: the file of the log; "": there is none.
        message: the newest line of the log.
        net: the name of the training net; "": it is not built yet.
        first, iteration, max_iter: the iterations done at the start, now, and at the end.
        paced: the iteration and the time from which the pace is measured, which is after the first iteration.
        loss: as the log shows it or, until then, of the last iteration; ``None``: unknown.
        learning_rate, samples_a_second: of the last displayed iteration; ``None``: there was none.
        judged: the test output that is shown; "": nothing is tested.
        score: its last value; ``None``: it was not tested yet.
        best: its best value.
        slowest: a line about the slowest rank; "": there is one rank, or nothing is known.
        snapshot, best_snapshot: the last written solver states; "": none.
    """

    ranks: int = 1
    started: float = field(default_factory=time.monotonic)
    log: str = ""
    message: str = ""
    net: str = ""
    first: int = 0
    iteration: int = 0
    max_iter: int = 0
    paced: tuple[int, float] | None = None
    loss: float | None = None
    learning_rate: float | None = None
    samples_a_second: float | None = None
    judged: str = ""
    score: float | None = None
    best: Best | None = None
    slowest: str = ""
    snapshot: str = ""
    best_snapshot: str = ""

    def seconds_an_iteration(self, now: float) -> float | None:
        """Return the mean time of an iteration, tests and snapshots included; ``None``: it is not known yet."""
        if self.paced is None or self.iteration <= self.paced[0]:
            return None
        return (now - self.paced[1]) / (self.iteration - self.paced[0])


def status_lines(status: TrainingStatus, now: float, width: int) -> Iterator[str]:
    """Yield the lines that show ``status`` at the time ``now``, each of at most ``width`` characters."""
    for line in _lines(status, now, width):
        yield line[:width]


def _lines(status: TrainingStatus, now: float, width: int) -> Iterator[str]:
    ranks = f"{status.ranks} ranks" if status.ranks > 1 else "one process"
    yield " · ".join([status.net or "starting", ranks, clock(now - status.started)])
    if status.max_iter:
        yield progress_bar(status, now, width)
    if numbers := [text for text in _numbers(status, now) if text]:
        yield " · ".join(numbers)
    if best := best_score(status):
        yield f"best {status.judged} {best}"
    if status.slowest:
        yield status.slowest
    if status.snapshot:
        yield f"snapshot {status.snapshot}"
    if status.log:
        yield f"log {status.log}"
    if status.message:
        yield f"  {status.message.strip()}"


def _numbers(status: TrainingStatus, now: float) -> Iterator[str]:
    if status.loss is not None:
        yield f"loss {short(status.loss)}"
    if status.learning_rate is not None:
        yield f"lr {short(status.learning_rate)}"
    seconds = status.seconds_an_iteration(now)
    if status.samples_a_second is not None:
        yield f"{short(status.samples_a_second)} samples/s"
    elif seconds:
        yield f"{short(1 / seconds)} iterations/s"


def progress_bar(status: TrainingStatus, now: float, width: int) -> str:
    """Return a bar of iterations, with their numbers and the time that is left."""
    done, total = status.iteration, status.max_iter
    seconds = status.seconds_an_iteration(now)
    left = f" · {clock((total - done) * seconds)} left" if seconds is not None and done < total else ""
    return bar(done, total, f" {done} of {total} · {100 * done // total} %{left}", width)


def best_score(status: TrainingStatus) -> str:
    """Return the best score and its iteration, and the last score if it is another; "" before the first test."""
    if status.best is None or status.score is None:
        return ""
    best, last = short(status.best.score), short(status.score)
    return f"{best} at iteration {status.best.iteration}" + (f" · last {last}" if last != best else "")


def slowest_line(ranks: list[Scored]) -> str:
    """Return a line about the rank that the others wait for; "" for one rank."""
    if len(ranks) < 2:
        return ""
    slowest = min(ranks, key=lambda each: each.score)
    busy = slowest.load.busy
    return f"slowest {slowest.name}: {as_ms(busy)} an iteration, the fastest {as_ms(busy * slowest.score)}"
