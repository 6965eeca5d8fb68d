"""Reads all items of a list in threads, to find those that cannot be read."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from bpt.base.errors import BptError
from bpt.data.prefetch import how_many

_AT_ONCE = 16  # items that a thread gets at once


def survey(
    count: int,
    read: Callable[[int], object],
    tell: Callable[[int], None] = lambda index: None,
    seconds: float = math.inf,
) -> Survey:
    """Read items 0 to ``count`` - 1, in a thread for each core, at most 8.

    Args:
        read: function that reads an item, in any thread, and raises a BptError for an unreadable one.
        tell: function that gets the number of each item that has been read, in order.
        seconds: time after which no more items are begun.
    """
    threads = how_many(0)
    block = threads * _AT_ONCE
    end = time.monotonic() + seconds
    errors: list[tuple[int, BptError]] = []
    done = 0
    with ThreadPoolExecutor(threads, "bpt survey") as pool:
        while done < count and time.monotonic() < end:
            indices = range(done, min(done + block, count))
            for index, error in zip(indices, pool.map(partial(_error_of, read), indices), strict=True):
                if error is not None:
                    errors.append((index, error))
                tell(index)
            done = indices.stop
    return Survey(errors, done, count)


def _error_of(read: Callable[[int], object], index: int) -> BptError | None:
    try:
        read(index)
    except BptError as error:
        return error
    return None


class Survey:
    """The result of a survey.

    Attributes:
        errors: number and error of each item that could not be read.
        looked: number of items that have been read.
        count: number of all items.
    """

    def __init__(self, errors: Sequence[tuple[int, BptError]], looked: int, count: int) -> None:
        self.errors = errors
        self.looked = looked
        self.count = count

    def texts(self) -> Iterator[str]:
        """Yield the message of each error."""
        return (str(error) for _, error in self.errors)
