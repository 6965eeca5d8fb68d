"""The largest batch of a rank that fits into memory, by steps of one image (CGDP, Fig. 6 b and §5.2.2)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from scripts.benches.cgdp.jobs import Done, Work
from scripts.benches.harness.launch import JobError

Run = Callable[[Work], Done]


def fitting(work: Work, run: Run) -> tuple[Work, Done]:
    """The ``work`` with the largest batch that fits, its own at most, and what that gave.

    Batches are halved until one fits; then what lies between it and the last one that did not is halved, so that the
    next larger batch, by one image, does not fit.

    Raises:
        JobError: another failure, or not even one image fits.
    """
    done = _attempt(work, run)
    if done is not None:
        return work, done
    too_many = work.batch
    while done is None:
        if work.batch == 1:
            raise JobError(f"{work.net}: not even one image fits: out of memory")
        too_many, work = work.batch, replace(work, batch=work.batch // 2)
        done = _attempt(work, run)
    return _between(work, done, too_many, run)


def largest(work: Work, run: Run, most: int) -> tuple[Work, Done]:
    """The ``work`` with the largest batch that fits, ``most`` at most; its own is where the search begins.

    Raises:
        JobError: another failure, or not even one image fits.
    """
    asked = work.batch
    work, done = fitting(work, run)
    if work.batch < asked:
        return work, done
    while work.batch < most:
        larger = replace(work, batch=min(2 * work.batch, most))
        tried = _attempt(larger, run)
        if tried is None:
            return _between(work, done, larger.batch, run)
        work, done = larger, tried
    return work, done


def _between(work: Work, done: Done, too_many: int, run: Run) -> tuple[Work, Done]:
    """The largest that fits between one that does, ``work``, and one that does not."""
    while too_many - work.batch > 1:
        middle = replace(work, batch=(work.batch + too_many) // 2)
        tried = _attempt(middle, run)
        if tried is None:
            too_many = middle.batch
        else:
            work, done = middle, tried
    return work, done


def _attempt(work: Work, run: Run) -> Done | None:
    """What the job gives; ``None``: it does not fit.

    Raises:
        JobError: another failure.
    """
    try:
        return run(work)
    except JobError as error:
        if not error.is_memory:
            raise
        print(f"{work.net}: {work.ranks} ranks of {work.batch} images do not fit", flush=True)
        return None
