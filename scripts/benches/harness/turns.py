"""Taking turns, so that what else the machine does hits all alike; and how sides compare that have taken them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from statistics import median, quantiles
from typing import IO, Any, TypeVar

from scripts.benches.harness.launch import worker

T = TypeVar("T")


def in_turn(sides: Sequence[T], rounds: int) -> Iterator[T]:
    """All ``sides``, so many times; every second time in the other order."""
    for number in range(rounds):
        yield from sides if number % 2 == 0 else sides[::-1]


class Side:
    """A loop of training in processes of its own, which goes on when asked.

    Args:
        processes: the first one answers on its stdout; see ``serve_turns``.
        orders: what each process reads its orders from.

    Attributes:
        seconds: of each iteration that counts.
        last: what the last turn was answered with.
    """

    def __init__(self, processes: Sequence[subprocess.Popen[str]], orders: Sequence[IO[str]]) -> None:
        self._processes = processes
        self._orders = orders
        self.seconds: list[float] = []
        self.last: dict[str, Any] = {}

    @classmethod
    def alone(cls, module: str, *words: object, variables: Mapping[str, str] | None = None) -> Side:
        """A side of one process, which calls ``serve`` of the module with these words.

        Args:
            variables: of its environment, beside those of this process.
        """
        process = subprocess.Popen(
            worker(module, *map(str, words)), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env={**os.environ, **(variables or {})},
        )  # fmt: skip
        assert process.stdin
        return cls([process], [process.stdin])

    def train(self, iterations: int, count: bool = True) -> None:
        """Let it take a turn.

        Args:
            count: whether its seconds count.
        """
        answers = self._processes[0].stdout
        assert answers
        for orders in self._orders:
            print(iterations, file=orders, flush=True)
        line = answers.readline()
        if not line:
            sys.exit("a side has ended; see above")
        self.last = json.loads(line)
        if count:
            self.seconds += self.last["seconds"]

    def close(self) -> None:
        """Let its processes end, and wait for that."""
        for orders in self._orders:
            orders.close()
        for process in self._processes:
            with process:  # which waits for it, and closes its pipes
                pass

    @property
    def median(self) -> float:
        """Seconds of an iteration."""
        return median(self.seconds)


def compete(sides: Sequence[Side], rounds: int, iterations: int, warm_up: int = 0) -> None:
    """Let sides train in turn, ``iterations`` a turn, after a warm-up; and end them."""
    for side in sides if warm_up else ():
        side.train(warm_up, count=False)
    for side in in_turn(sides, rounds):
        side.train(iterations)
    for side in sides:
        side.close()


def serve_turns(
    orders: Iterable[str], step: Callable[[], object], facts: Callable[[], dict[str, Any]], answers: bool = True
) -> None:
    """A side's process: train as often as each of the ``orders`` says, and answer with each iteration's seconds.

    Args:
        step: an iteration.
        facts: what else to answer, after the turn.
        answers: whether this is the process that answers.
    """
    for line in orders:
        seconds = []
        for _ in range(int(line)):
            start = time.perf_counter()
            step()
            seconds.append(time.perf_counter() - start)
        if answers:
            print(json.dumps({"seconds": seconds, **facts()}), flush=True)


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> str:
    """Cells of a table: how turns that followed each other compare, the median and the quartiles."""
    ratios = [one / other for one, other in zip(ours, theirs, strict=True)]
    low, _, high = quantiles(ratios, n=4) if len(ratios) > 1 else ratios * 3
    return f"{median(ratios):>6.2f}  {low:.2f} - {high:.2f}"
