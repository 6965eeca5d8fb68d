"""What ``scripts/bench forecast`` finds: rows of CSV files, what they say together, and tables of them in Markdown."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, fields, replace
from itertools import combinations
from pathlib import Path
from statistics import fmean, median
from typing import TypeVar

from scripts.benches.forecast.cases import ACCURACY, AUTO, CHOSEN, PLAIN
from scripts.benches.harness.tables import append_rows

MEAN, WORST, ORDER = 0.05, 0.15, 0.98  # goals: errors of times at most, and pairs in the right order at least
APART = 0.10  # pairs whose times differ by less have no order that counts
NEAR_BEST, FASTER = 0.05, 0.20  # of what auto chooses: slower than the best at most, faster than plain at least
MEMORY = 0.10  # error of memory at most
_MIB = 2**20


@dataclass(frozen=True)
class Row:
    """A way to train a network at a place.

    Attributes:
        part, place, net, way: see cases.py.
        plan: what was laid over the solver's text.
        predicted, measured: seconds of an iteration; measured: the median.
        quartiles: seconds between the first and the third.
        iterations: that count.
        shares, seen: samples of each that has some, predicted and in training.
        turn: of how many times that this is measured, from 1; of ``middle``: how many there are.
    """

    part: str
    place: str
    net: str
    way: str
    plan: str
    predicted: float
    measured: float
    quartiles: float
    iterations: int
    shares: str = ""
    seen: str = ""
    turn: int = 1

    @property
    def key(self) -> tuple[str, str, str, str]:
        """What is measured once a turn."""
        return self.part, self.place, self.net, self.way

    @property
    def error(self) -> float:
        """Of the prediction; above 0: too long."""
        return self.predicted / self.measured - 1


@dataclass(frozen=True)
class Held:
    """What a rank holds, in bytes: ``predicted``, and ``measured`` at the peak, beside ``before``, of its libraries."""

    net: str
    ranks: int
    way: str
    rank: int
    predicted: float
    measured: float
    before: float

    @property
    def key(self) -> tuple[str, int, str]:
        """What is measured once."""
        return self.net, self.ranks, self.way

    @property
    def error(self) -> float:
        """Of the prediction; above 0: too much."""
        return self.predicted / self.measured - 1


_Row = TypeVar("_Row", Row, Held)


def append(path: Path, *rows: Row | Held) -> None:
    """Add rows to a CSV file, which is made if there is none."""
    append_rows(path, [field.name for field in fields(rows[0])], map(astuple, rows))


def read(path: Path, kind: type[_Row]) -> list[_Row]:
    """The rows of a CSV file; none, if there is no file."""
    if not path.exists():
        return []
    types: Mapping[str, type] = {"int": int, "float": float, "str": str}
    casts = {field.name: types[str(field.type)] for field in fields(kind)}
    with path.open(newline="") as file:
        return [kind(**{name: casts[name](text) for name, text in row.items()}) for row in csv.DictReader(file)]


# Times


def middle(rows: Iterable[Row]) -> list[Row]:
    """Of the turns of each way one row, of the medians of both times."""
    return [
        replace(
            turns[0],
            predicted=median(row.predicted for row in turns),
            measured=median(row.measured for row in turns),
            turn=len(turns),
        )
        for turns in _by_key(rows).values()
    ]


def repeatability(rows: Iterable[Row]) -> Iterator[str]:
    """How far two measurements of the same are apart, which no forecast can be nearer to."""
    found = [(row, other) for turns in _by_key(rows).values() for row, other in combinations(turns, 2)]
    apart = [abs(row.measured / other.measured - 1) for row, other in found]
    if apart:
        told = [abs(row.predicted / other.predicted - 1) for row, other in found]
        yield (
            f"the same measured twice: {fmean(apart):.1%} apart in the mean, {max(apart):.1%} at worst; "
            f"predicted from what was measured twice: {fmean(told):.1%}"
        )


def _by_key(rows: Iterable[Row]) -> dict[tuple[str, str, str, str], list[Row]]:
    found: dict[tuple[str, str, str, str], list[Row]] = {}
    for row in rows:
        found.setdefault(row.key, []).append(row)
    return found


def in_order(rows: Sequence[Row], alike: bool) -> tuple[int, int]:
    """Pairs whose measured times differ by more than APART: those that are predicted in the right order, and all.

    Args:
        alike: only pairs of one network in one place, among which somebody would choose.
    """
    right = number = 0
    for one, other in combinations(rows, 2):
        if alike and (one.place, one.net) != (other.place, other.net):
            continue
        low, high = sorted((one, other), key=lambda row: row.measured)
        if high.measured > (1 + APART) * low.measured:
            number += 1
            right += high.predicted > low.predicted
    return right, number


def accuracy(rows: Iterable[Row]) -> Iterator[str]:
    """How true the forecasts of time are."""
    timed = [row for row in rows if row.part == ACCURACY]
    found = middle(timed)
    if not found:
        return
    mean, worst = fmean(abs(row.error) for row in found), max(found, key=lambda row: abs(row.error))
    yield f"{len(found)} configurations: mean |error| {mean:.1%}, goal {MEAN:.0%}: {_met(mean <= MEAN)}"
    yield (
        f"worst error {worst.error:+.1%} ({worst.net}, {worst.way}, {worst.place}), goal {WORST:.0%}: "
        f"{_met(abs(worst.error) <= WORST)}"
    )
    for alike, words in ((False, "all pairs"), (True, "pairs of one net in one place")):
        right, number = in_order(found, alike)
        if number:
            yield (
                f"order of {words} that differ by more than {APART:.0%}: {right} of {number} right, "
                f"{right / number:.1%}, goal {ORDER:.0%}: {_met(right / number >= ORDER)}"
            )
    yield from repeatability(timed)


@dataclass(frozen=True)
class Choice:
    """What the planner has chosen of a network in a place, and what else was measured there."""

    chosen: Row
    others: tuple[Row, ...]

    @property
    def best(self) -> Row:
        """The fastest of all."""
        return min((self.chosen, *self.others), key=lambda row: row.measured)

    @property
    def behind(self) -> float:
        """By how much it takes longer than the best, as a part of that."""
        return self.chosen.measured / self.best.measured - 1

    @property
    def gain(self) -> float:
        """By how much it is faster than plain data parallelism."""
        (plain,) = (row for row in self.others if row.way == PLAIN)
        return plain.measured / self.chosen.measured - 1

    @property
    def should_gain(self) -> bool:
        """Whether hosts are unlike there, or links slow: all test beds of the bench are so."""
        return not self.chosen.place.startswith("1 host")


def choices(rows: Iterable[Row]) -> list[Choice]:
    """One for each network and place of which all that is needed was measured."""
    by_case: dict[tuple[str, str], dict[str, Row]] = {}
    for row in middle(rows):
        if row.part == AUTO:
            by_case.setdefault((row.place, row.net), {})[row.way] = row
    return [
        Choice(ways[CHOSEN], tuple(row for way, row in ways.items() if way != CHOSEN))
        for ways in by_case.values()
        if {CHOSEN, PLAIN} <= set(ways)
    ]


def auto(rows: Iterable[Row]) -> Iterator[str]:
    """How good what the planner chooses is."""
    found = choices(rows)
    if not found:
        return
    worst = max(found, key=lambda choice: choice.behind)
    near = sum(choice.behind <= NEAR_BEST for choice in found)
    yield (
        f"auto: within {NEAR_BEST:.0%} of the best measured in {near} of {len(found)} cases, at worst "
        f"{worst.behind:.1%} behind ({worst.chosen.net}, {worst.chosen.place}): {_met(near == len(found))}"
    )
    hard = [choice for choice in found if choice.should_gain]
    if hard:
        least = min(hard, key=lambda choice: choice.gain)
        yield (
            f"auto: where hosts are unlike or links slow, at least {least.gain:.1%} faster than plain data parallelism "
            f"({least.chosen.net}, {least.chosen.place}), goal {FASTER:.0%}: {_met(least.gain >= FASTER)}"
        )


# Memory


def memory(found: Sequence[Held]) -> Iterator[str]:
    """How true the forecasts of memory are."""
    if not found:
        return
    worst = max(found, key=lambda row: abs(row.error))
    mean = fmean(abs(row.error) for row in found)
    yield (
        f"memory of {len(found)} ranks: mean |error| {mean:.1%}, worst {worst.error:+.1%} ({worst.net}, {worst.way}, "
        f"rank {worst.rank} of {worst.ranks}), goal {MEMORY:.0%}: {_met(abs(worst.error) <= MEMORY)}"
    )


def _met(is_met: bool) -> str:
    return "met" if is_met else "missed"


# Tables


def tables(rows: Sequence[Row], held: Sequence[Held]) -> Iterator[str]:
    """All of it in Markdown."""
    if timed := middle(row for row in rows if row.part == ACCURACY):
        yield from _table(
            ("place", "net", "way", "predicted ms", "measured ms", "error"),
            (
                (row.place, row.net, row.way, _ms(row.predicted), _ms(row.measured), f"{row.error:+.1%}")
                for row in timed
            ),
        )
        yield from _said(accuracy(rows))
    if found := choices(rows):
        yield from _table(
            ("place", "net", "auto chooses", "ms", "best measured", "ms", "plain ms", "faster than plain"),
            (
                (
                    each.chosen.place, each.chosen.net, f"`{each.chosen.plan}`", _ms(each.chosen.measured),
                    each.best.way, _ms(each.best.measured), _ms(each.chosen.measured * (1 + each.gain)),
                    f"{each.gain:+.1%}",
                )
                for each in found
            ),
        )  # fmt: skip
        yield from _said(auto(rows))
    if held:
        yield from _table(
            ("net", "ranks", "way", "rank", "predicted MiB", "measured MiB", "error"),
            (
                (row.net, str(row.ranks), row.way, str(row.rank), _mib(row.predicted), _mib(row.measured),
                 f"{row.error:+.1%}")
                for row in held
            ),
        )  # fmt: skip
        yield from _said(memory(held))


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    for cells in (head, ["---"] * len(head), *rows):
        yield f"| {' | '.join(cells)} |"
    yield ""


def _said(lines: Iterable[str]) -> Iterator[str]:
    yield from (f"- {line}" for line in lines)
    yield ""


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:,.4g}"


def _mib(nbytes: float) -> str:
    return f"{nbytes / _MIB:,.4g}"
