"""A virtual clock for schedules: workers of unlike speeds that do what they are ordered, and may die."""

from __future__ import annotations

import heapq
import itertools
import math
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from bpt.data.sample_partition import Run, size
from bpt.parallel.outer.agwu import Agwu
from bpt.parallel.outer.asgd import Asgd
from bpt.parallel.outer.base import OuterSchedule
from bpt.parallel.outer.idpa import DivisionRule, Idpa, Udpa
from bpt.parallel.outer.outer_instructions import Lost, Order, OuterInstruction, SendOrder, SubmissionReport
from bpt.parallel.outer.replay import Replay
from bpt.parallel.outer.sgwu import Sgwu

BATCH = 5  # samples of an iteration


@dataclass
class Player:
    """A worker that does what it is ordered."""

    runs: list[Run] = field(default_factory=list)
    passes: Fraction = Fraction(0)
    missed: Fraction = Fraction(0)  # passes, before it got its first samples
    order: Order | None = None  # that it works at
    orders: int = 0
    began: float = 0.0
    ended: float = 0.0
    trained: int = 0
    stopped: bool = False
    dead: bool = False

    def goal(self) -> tuple[Fraction, int]:
        """How far its order lets it train: passes, and samples until then."""
        assert self.order is not None and self.runs
        samples = math.ceil((self.order.until - self.passes) * size(self.runs))
        if 0 < self.order.iterations * BATCH < samples:
            return self.after(self.order.iterations * BATCH)
        return self.order.until, samples

    def after(self, samples: int) -> tuple[Fraction, int]:
        return self.passes + Fraction(samples, size(self.runs)), samples


class Play:
    """A run of ``schedule`` on a virtual clock: workers of unlike speeds do what they are ordered.

    Args:
        speeds: of the workers, in samples a second.
        frequencies: that the schedule is told; all alike without them.
        deaths: worker → when it dies.
        stops: when the run is stopped: workers submit after their iteration.
        hints: whether the schedule is told of passes that are under way.
        changes: (when, worker, its speed from its next order on).
        check: called after each event.
    """

    def __init__(
        self, schedule: OuterSchedule | Replay, speeds: Sequence[float],
        frequencies: Sequence[float | None] | None = None, deaths: Mapping[int, float] | None = None,
        stops: float = math.inf, hints: bool = False, changes: Iterable[tuple[float, int, float]] = (),
        check: Callable[[Play], None] = lambda play: None,
    ) -> None:  # fmt: skip
        self.schedule = schedule
        self.players = [Player() for _ in speeds]
        self.log: list[OuterInstruction] = []
        self.now = 0.0
        self._speeds = list(speeds)
        self._hints = hints
        self._check = check
        self._numbers = itertools.count()
        self._events: list[tuple[float, int, Callable[..., None], tuple[float, ...]]] = []
        for worker, time in (deaths or {}).items():
            self._at(time, self._die, worker)
        for time, worker, speed in changes:
            self._at(time, self._speeds.__setitem__, worker, speed)
        self._at(stops, self._stop)
        self._do(schedule.begin(frequencies or [1.0] * len(speeds)))

    def run(self) -> Play:
        while not self.schedule.done:
            self.now, _, happen, arguments = heapq.heappop(self._events)
            assert self.now < math.inf, "the run stands still"
            happen(*arguments)
            self._check(self)
        assert all(player.stopped or player.dead for player in self.players)
        return self

    def _at(self, time: float, happen: Callable[..., None], *arguments: float) -> None:
        heapq.heappush(self._events, (time, next(self._numbers), happen, arguments))

    def _do(self, instructions: Iterable[OuterInstruction]) -> None:
        for instruction in instructions:
            self.log.append(instruction)
            if isinstance(instruction, SendOrder):
                self._take(instruction.order)

    def _take(self, order: Order) -> None:
        player = self.players[order.worker]
        assert player.order is None and not player.stopped, (order, player)
        player.stopped = order.stop
        if order.stop or player.dead:
            return
        if not player.runs:
            player.passes = player.missed = order.passes
        assert order.passes == player.passes <= order.until, (order, player)
        assert not order.runs or player.passes.denominator == 1, "samples change within a pass"
        assert not order.gives or player.passes.denominator == 1, "samples change within a pass"
        player.runs = _without(player.runs, order.gives) + list(order.runs)
        player.order, player.began = order, self.now
        player.orders += 1
        seconds = player.goal()[1] / self._speeds[order.worker]
        self._at(self.now + seconds, self._submit, order.worker, player.orders)

    def _submit(self, worker: int, number: int) -> None:
        player = self.players[worker]
        if player.order is not None and player.orders == number:
            self._hand_in(worker, *player.goal())

    def _hand_in(self, worker: int, passes: Fraction, samples: int) -> None:
        player = self.players[worker]
        seconds = self.now - player.began
        player.passes, player.order, player.ended = passes, None, self.now
        player.trained += samples
        if self._hints and isinstance(self.schedule, OuterSchedule) and self.schedule.hands_out(worker):
            for other, busy in enumerate(self.players):
                if busy.order is not None and self.now > busy.began:
                    now = int((self.now - busy.began) * self._speeds[other])
                    self.schedule.progressed(other, now, self.now - busy.began)
        self._do(self.schedule.submitted(SubmissionReport(worker, passes, -(-samples // BATCH), samples, seconds)))

    def _die(self, worker: int) -> None:
        player = self.players[worker]
        if not player.stopped:
            player.dead, player.order = True, None
            self._do(self.schedule.lost(worker))

    def _stop(self) -> None:
        self.schedule.stop()
        for worker, player in enumerate(self.players):
            if player.order is not None:
                done = BATCH * (1 + int((self.now - player.began) * self._speeds[worker] / BATCH))
                goal = player.goal()
                self._hand_in(worker, *(player.after(done) if done < goal[1] else goal))


def _without(runs: Iterable[Run], gone: Iterable[Run]) -> list[Run]:
    """``runs`` without the samples of ``gone``, all of which they have."""
    left = {sample for start, stop in runs for sample in range(start, stop)}
    lost = {sample for start, stop in gone for sample in range(start, stop)}
    assert lost <= left, (runs, gone)
    return [(sample, sample + 1) for sample in sorted(left - lost)] if lost else list(runs)


def conserved(play: Play) -> None:
    """Every sample that has been handed out is on exactly one worker that lives, or on its way to it."""
    assert isinstance(play.schedule, OuterSchedule)
    held: list[Run] = []
    for player, node in zip(play.players, play.schedule.nodes, strict=True):
        if player.dead:
            assert not node.pending and not node.samples
        else:
            assert size(player.runs) == node.samples
            held += [*player.runs, *node.pending]
    idpa = play.schedule.idpa
    if play.schedule.done and any(player.dead for player in play.players):
        return  # those of the last one have nobody left to go to
    if any(isinstance(each, Lost) and not each.taken_over for each in play.log):
        return  # all others were in their last passes
    end = 0
    for start, stop in sorted(held):
        assert start == end < stop, (start, end)
        end = stop
    assert end == (idpa.samples if idpa.done else idpa.samples // idpa.batches * idpa.batch)


BALANCES: dict[str, Callable[[int, int, int], Idpa]] = {
    "HARMONIC": Idpa,
    "PAPER": lambda samples, nodes, batches: Idpa(samples, nodes, batches, DivisionRule.PAPER),
    "UDPA": lambda samples, nodes, batches: Udpa(samples, nodes),
}


def random_schedule(exchange: str, balance: str, generator: random.Random, workers: int) -> OuterSchedule:
    """Few samples, so that some workers get none; K need not be whole."""
    batches = generator.randint(1, 4)
    idpa = BALANCES[balance](generator.choice([batches, generator.randint(4, 12), 100]), workers, batches)
    passes = batches + Fraction(generator.randint(0, 20), 7)
    bound = generator.choice([0, 0, max(1, workers - 1), workers + 3])
    if exchange == "SGWU":
        return Sgwu(idpa, passes, generator.randint(1, 3))
    if exchange == "AGWU":
        return Agwu(idpa, passes, generator.randint(1, 3), bound)
    fetch = 1 if bound else generator.randint(1, 3)
    return Asgd(idpa, passes, generator.randint(1, 3), fetch, bound)
