"""What ``scripts/bench balance`` finds: turns of both sides, beside the ideal; as lines, and as rows of CSV files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median, stdev
from typing import Any

from bpt.parallel.balance import imbalance
from bpt.parallel.balance.profile import Profile, static_from
from scripts.benches.harness.curve import Point

SIDES = ("UNIFORM", "STATIC")


@dataclass(frozen=True)
class Turn:
    """What was seen of one side in a turn of iterations; all numbers are means of an iteration, in seconds.

    Attributes:
        seconds: of the whole iteration.
        computing: that each rank computed, without waiting for others.
        exchange: that the exchange added on each rank, waiting included.
    """

    seconds: float
    computing: tuple[float, ...]
    exchange: tuple[float, ...]


@dataclass(frozen=True)
class Outcome:
    """One side's turns; its numbers are medians over them, in seconds.

    Attributes:
        shares: samples of each rank.
    """

    shares: tuple[int, ...]
    turns: tuple[Turn, ...]

    @property
    def seconds(self) -> float:
        """Of an iteration."""
        return median(turn.seconds for turn in self.turns)

    @property
    def computing(self) -> list[float]:
        """That each rank computes."""
        return [median(times) for times in zip(*(turn.computing for turn in self.turns), strict=True)]

    @property
    def waiting(self) -> list[float]:
        """That the exchange takes on each rank, until it has the gradients: what the paper calls communication."""
        return [median(times) for times in zip(*(turn.exchange for turn in self.turns), strict=True)]

    @property
    def exchange(self) -> float:
        """That the exchange takes on the rank that waits least."""
        return median(min(turn.exchange) for turn in self.turns)


def outcomes(read: dict[str, Any]) -> dict[str, Outcome]:
    """Side → outcome, from what the first rank has answered."""
    return {
        side: Outcome(
            tuple(read[side]["shares"]),
            tuple(Turn(t["seconds"], tuple(t["computing"]), tuple(t["exchange"])) for t in read[side]["turns"]),
        )
        for side in SIDES
    }


def ideal_seconds(shares: Sequence[int], seconds: Sequence[float]) -> float:
    """B / sum_p s_p: of a batch that could be divided perfectly.

    Args:
        shares: x_p, samples of each rank near which its speed counts; one without any adds nothing.
        seconds: t_p(x_p).
    """
    return sum(shares) / sum(share / time for share, time in zip(shares, seconds, strict=True) if share)


@dataclass(frozen=True)
class Compared:
    """Both sides with one batch.

    Attributes:
        net: its name.
        ranks: a name of each.
        predicted: side → seconds that the profile says for each rank.
        sides: side → outcome.
        epoch: samples of an epoch.
        parameters: of the net.
    """

    net: str
    ranks: Sequence[str]
    predicted: Mapping[str, Sequence[float]]
    sides: Mapping[str, Outcome]
    epoch: int = 0
    parameters: int = 0

    @property
    def batch(self) -> int:
        """Samples of all ranks together."""
        return sum(self.sides["STATIC"].shares)

    @property
    def iterations(self) -> float:
        """Of an epoch."""
        return self.epoch / self.batch

    @property
    def speedup(self) -> float:
        """Of STATIC over UNIFORM."""
        return self.sides["UNIFORM"].seconds / self.sides["STATIC"].seconds

    @property
    def ideals(self) -> dict[str, tuple[float, float]]:
        """The slowest of equal shares, and the ideal iteration, in seconds: at the speeds that were seen in training,
        and by the profile."""
        shares = self.sides["STATIC"].shares
        computing = {side: outcome.computing for side, outcome in self.sides.items()}
        times = {"in training": computing, "by the profile": self.predicted}
        return {words: (max(t["UNIFORM"]), ideal_seconds(shares, t["STATIC"])) for words, t in times.items()}


def compared(net: str, ranks: Sequence[str], profile: Profile, sides: Mapping[str, Outcome]) -> Compared:
    """Both sides beside what the profile says."""
    functions = static_from(profile).functions
    predicted = {
        side: [f.seconds(count) for f, count in zip(functions, outcome.shares, strict=True)]
        for side, outcome in sides.items()
    }
    return Compared(net, ranks, predicted, sides)


def report(result: Compared) -> Iterator[str]:
    """The lines about one net and batch."""
    static = result.sides["STATIC"]
    yield f"{result.net}, batch {result.batch}: ms an iteration, medians of {len(static.turns)} turns"
    yield f"  {'':<8} {'rank':<8} {'samples':>8} {'predicted':>10} {'seen':>10}"
    for side, outcome in result.sides.items():
        predicted = result.predicted[side]
        for rank, (name, count, *times) in enumerate(
            zip(result.ranks, outcome.shares, predicted, outcome.computing, strict=True)
        ):
            cells = " ".join(f"{seconds * 1e3:>10.1f}" for seconds in times)
            yield f"  {'' if rank else side:<8} {f'{rank} ({name})':<8} {count:>8} {cells}"
        yield (
            f"  {'':<8} imbalance predicted {imbalance(predicted):.1%}, seen {imbalance(outcome.computing):.1%}; "
            f"exchange {outcome.exchange * 1e3:.1f}; whole iteration {outcome.seconds * 1e3:.1f}"
        )
    yield f"  speed-up of STATIC over UNIFORM: {result.speedup:.3f}"
    for words, (even, best) in result.ideals.items():
        yield (
            f"  ideal at the speeds {words}: {even / best:.3f} ({even * 1e3:.1f} / {best * 1e3:.1f}); "
            f"achieved / ideal {result.speedup * best / even:.1%}"
        )


SPEEDS = ("place", "net", "rank", "name", "batch", "seconds", "half_width", "samples_a_second", "fit_into_memory")


def speed_rows(place: str, net: str, names: Sequence[str], profile: Profile) -> Iterator[tuple[object, ...]]:
    """What was measured of each rank (Fig. 3)."""
    for rank, (name, speed) in enumerate(zip(names, profile.speeds, strict=True)):
        for size, point in sorted(speed.points.items()):
            yield place, net, rank, name, size, point.seconds, point.half_width, size / point.seconds, speed.cap


TIMES = (
    "place", "net", "batch", "balance", "rank", "name", "samples", "predicted", "computing", "communication",
    "computing_of_an_epoch", "communication_of_an_epoch",
)  # fmt: skip


def time_rows(place: str, result: Compared) -> Iterator[tuple[object, ...]]:
    """Seconds of each rank in an iteration and in an epoch, computation and communication apart (Fig. 2, 4, 6)."""
    for side, outcome in result.sides.items():
        each = zip(
            result.ranks, outcome.shares, result.predicted[side], outcome.computing, outcome.waiting, strict=True
        )
        for rank, (name, share, predicted, computing, waiting) in enumerate(each):
            yield (
                place, result.net, result.batch, side, rank, name, share, predicted, computing, waiting,
                computing * result.iterations, waiting * result.iterations,
            )  # fmt: skip


SPEEDUPS = (
    "place", "ranks", "net", "parameters", "batch", "unbalanced", "balanced", "speedup", "ideal_in_training",
    "ideal_by_the_profile", "achieved_of_ideal", "achieved_of_ideal_by_the_profile",
)  # fmt: skip


def speedup_row(place: str, result: Compared) -> tuple[object, ...]:
    """Table 4, and Fig. 5 and 7: seconds of an epoch, and the speed-up beside the ideal."""
    seconds = [result.sides[side].seconds * result.iterations for side in SIDES]
    ideals = [even / best for even, best in result.ideals.values()]
    return (
        place, len(result.ranks), result.net, result.parameters, result.batch, *seconds, result.speedup, *ideals,
        *(result.speedup / ideal for ideal in ideals),
    )  # fmt: skip


Repeated = Mapping[str, Sequence[Sequence[Point]]]  # side → points of each repetition
CURVES = ("place", "net", "batch", "balance", "repetition", "epoch", "seconds", "accuracy")
ACCURACIES = (
    "place", "net", "batch", "balance", "epochs", "repetitions", "maximum", "maximum_deviation", "last",
    "last_deviation", "seconds",
)  # fmt: skip


def curve_rows(place: str, net: str, batch: int, samples: int, curves: Repeated) -> Iterator[tuple[object, ...]]:
    """Accuracy by epoch and by seconds (Fig. 8 and 9)."""
    for side, repetitions in curves.items():
        for number, points in enumerate(repetitions):
            for iteration, seconds, accuracy in points:
                yield place, net, batch, side, number, iteration * batch / samples, seconds, accuracy


def accuracy_rows(place: str, net: str, batch: int, samples: int, curves: Repeated) -> Iterator[tuple[object, ...]]:
    """Table 3: maximum and last accuracy, means and standard deviations over repetitions."""
    for side, repetitions in curves.items():
        best = [max(accuracy for _, _, accuracy in points) for points in repetitions]
        last = [points[-1][2] for points in repetitions]
        epochs = repetitions[0][-1][0] * batch / samples
        seconds = fmean(points[-1][1] for points in repetitions)
        yield (
            place, net, batch, side, epochs, len(repetitions), fmean(best), _deviation(best), fmean(last),
            _deviation(last), seconds,
        )  # fmt: skip


def _deviation(values: Sequence[float]) -> float:
    return stdev(values) if len(values) > 1 else 0.0
