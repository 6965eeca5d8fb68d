"""RankLoad: the work of each rank between displayed iterations, and the rank for which the others wait.

Scores are those of NVIDIA's resiliency extension: at 1 a rank is as fast as the fastest rank, or as itself at its best.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from bpt.base.log import number
from bpt.system.comm.connectivity import name_of
from bpt.system.events.event import Activity
from bpt.system.events.totals import Key, Traffic, busy_seconds, phase_seconds, traffic_of

SLOWED = 0.5  # own score below which the log reports a rank


@dataclass(frozen=True)
class RankLoad:
    """The work of one rank, in seconds an iteration.

    Attributes:
        host: its host.
        computing: forward, backward and update, without the other items.
        data: waiting for samples.
        exchange: the time that the exchange of gradients adds, mostly waiting for slower ranks.
        pipeline: waiting for other stages.
        memory: peak memory of the process on its device in bytes.
        layers: messages of layers to other ranks: slices of shards, statistics of ``sync_batch_norm``.
    """

    host: str
    computing: float
    data: float
    exchange: float
    pipeline: float
    memory: int
    layers: float = 0.0

    @property
    def busy(self) -> float:
        """The seconds for which others may have to wait."""
        return self.computing + self.data

    @property
    def occupied(self) -> float:
        """The seconds of forward, backward and update, with messages of layers."""
        return self.busy + self.layers

    @property
    def whole(self) -> float:
        """The seconds of a whole iteration."""
        return self.occupied + self.exchange + self.pipeline


@dataclass(frozen=True)
class Predicted:
    """The predicted RankLoad of a rank, by the forecast of its plan, in seconds an iteration."""

    computing: float
    exchange: float
    pipeline: float


def load_of(totals: Mapping[Key, Traffic], iterations: int, host: str, memory: int) -> RankLoad:
    """Return the load from the totals of ``iterations`` iterations."""
    phases = phase_seconds(totals)
    data = totals.get(Key(Activity.WAIT_FOR_DATA), Traffic()).seconds
    own = max(0.0, busy_seconds(phases, traffic_of(totals)) - data)
    layers = phases["forward"] + phases["backward"] + phases["update"] - data - own
    exchange = phases["exchange"] + phases["broadcast"]
    own, data, exchange, pipeline, layers = (
        max(value, 0.0) / iterations for value in (own, data, exchange, phases["pipeline"], layers)
    )
    return RankLoad(host, own, data, exchange, pipeline, memory, layers)


@dataclass(frozen=True)
class Scored:
    """The load of a rank, compared to those of the others and to its own earlier load.

    Attributes:
        rank: its number in the job.
        load: its load in the interval.
        score: busy time of the fastest rank / busy time of this rank; 1 is as fast.
        own_score: busy time of this rank at its best / its current busy time.
        predicted: its predicted load; ``None``: there is no prediction.
    """

    rank: int
    load: RankLoad
    score: float
    own_score: float
    predicted: Predicted | None = None

    @property
    def name(self) -> str:
        """The name of the rank in messages."""
        return name_of(self.rank, self.load.host)


class StragglerScores:
    """Scores loads interval by interval, and stores the best load of each rank."""

    def __init__(self) -> None:
        self._best: dict[int, float] = {}

    def of(self, ranks: Sequence[int], loads: Sequence[RankLoad]) -> list[Scored]:
        """Return the scores of an interval.

        Args:
            ranks: numbers in the job of the ranks that train.
            loads: their loads.
        """
        least = min(load.busy for load in loads)
        scored = []
        for rank, load in zip(ranks, loads, strict=True):
            best = self._best[rank] = min(load.busy, self._best.get(rank, load.busy))
            scored.append(Scored(rank, load, _ratio(least, load.busy), _ratio(best, load.busy)))
        return scored


def straggler_lines(ranks: Sequence[Scored]) -> Iterator[str]:
    """Yield the log lines of an interval: the slowest rank and why, and ranks much slower than before."""
    slowest = min(ranks, key=lambda each: each.score)
    exchange = [each.load.exchange for each in ranks]
    memory = max(each.load.memory for each in ranks)
    yield (
        f"    Slowest of {len(ranks)} ranks: {slowest.name}, busy {as_ms(slowest.load.busy)} an iteration "
        f"({why(slowest.load)}), the fastest {as_ms(slowest.load.busy * slowest.score)}; exchange adds "
        f"{as_ms(min(exchange))} to {as_ms(max(exchange))}; memory up to {memory / 2**20:.0f} MiB"
    )
    for each in ranks:
        if each.own_score < SLOWED:
            yield (
                f"    {each.name} has slowed down: busy {as_ms(each.load.busy)} an iteration, "
                f"{as_ms(each.load.busy * each.own_score)} at its best (score {each.own_score:.2f}); {why(each.load)}"
            )


def why(load: RankLoad) -> str:
    """Return words for the work of a rank."""
    if load.data > load.computing:
        return f"it waits for data, {as_ms(load.data)}"
    return f"it computes, {as_ms(load.computing)}" + (f", and waits for data, {as_ms(load.data)}" if load.data else "")


def _ratio(least: float, seconds: float) -> float:
    return min(1.0, least / seconds) if seconds else 1.0


def as_ms(seconds: float) -> str:
    """Return milliseconds with three digits."""
    return f"{number(float(f'{seconds * 1e3:.3g}'))} ms"
