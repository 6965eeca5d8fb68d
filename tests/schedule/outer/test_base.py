"""What SGWU, AGWU and ASGD have in common: who has which samples, who trains how often, and that every run ends."""

from __future__ import annotations

import heapq
import itertools
import math
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

import pytest

from bpt.balance.allocation import Run, size
from bpt.balance.idpa import Idpa, Rule, Udpa
from bpt.errors import RunError, UserError
from bpt.schedule.outer.agwu import Agwu
from bpt.schedule.outer.asgd import Asgd
from bpt.schedule.outer.base import OuterSchedule, State
from bpt.schedule.outer.instructions import Cut, Descend, Instruction, Lost, Merge, Send
from bpt.schedule.outer.messages import Order, Report
from bpt.schedule.outer.replay import Replay
from bpt.schedule.outer.sgwu import Sgwu

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
        self.log: list[Instruction] = []
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

    def _do(self, instructions: Iterable[Instruction]) -> None:
        for instruction in instructions:
            self.log.append(instruction)
            if isinstance(instruction, Send):
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
        player.runs += order.runs
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
        if self._hints and self.schedule.hands_out(worker):
            for other, busy in enumerate(self.players):
                if busy.order is not None and self.now > busy.began:
                    now = int((self.now - busy.began) * self._speeds[other])
                    self.schedule.progressed(other, now, self.now - busy.began)
        self._do(self.schedule.submitted(Report(worker, passes, -(-samples // BATCH), samples, seconds)))

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
    end = 0
    for start, stop in sorted(held):
        assert start == end < stop, (start, end)
        end = stop
    assert end == (idpa.samples if idpa.done else idpa.samples // idpa.batches * idpa.batch)


BALANCES: dict[str, Callable[[int, int, int], Idpa]] = {
    "HARMONIC": Idpa,
    "PAPER": lambda samples, nodes, batches: Idpa(samples, nodes, batches, Rule.PAPER),
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


@pytest.mark.parametrize("balance", BALANCES)
@pytest.mark.parametrize("exchange", ["SGWU", "AGWU", "ASGD"])
def test_whatever_happens(exchange: str, balance: str) -> None:
    """On random clusters, of which some nodes die and some get no samples at first, all samples stay, and all runs
    end, after K' passes of each worker."""
    for seed in range(250):
        generator = random.Random(seed)
        workers = generator.randint(1, 6)
        schedule = random_schedule(exchange, balance, generator, workers)
        speeds = [generator.choice([1, 2, 10]) * generator.uniform(1, 2) for _ in range(workers)]
        lost = generator.sample(range(workers), generator.choice([0, 0, generator.randint(0, workers - 1)]))
        play = Play(
            schedule, speeds, [generator.choice([None, 0.01, 1.0, 1.5]) for _ in speeds],
            {worker: generator.uniform(0, 30) for worker in lost}, hints=generator.random() < 0.5, check=conserved,
        ).run()  # fmt: skip
        assert schedule.idpa.done and schedule.progress == 1
        for player in play.players:
            if player.stopped and player.runs:
                assert player.passes == schedule.total
                assert player.missed.denominator == 1 and player.missed < schedule.idpa.batches
            elif player.stopped:
                assert not player.trained
        staleness = [each.update.staleness for each in play.log if isinstance(each, Merge | Descend)]
        bound = schedule.versions._max_staleness if isinstance(schedule, Agwu) else 0
        assert not bound or max(staleness) <= bound


@pytest.mark.parametrize("exchange", ["SGWU", "AGWU", "ASGD"])
def test_stopped_at_any_moment(exchange: str) -> None:
    """Everybody submits once more, and is told to stop; what was less than ordered is on record."""
    cuts = 0
    for seed in range(150):
        generator = random.Random(seed)
        workers = generator.randint(1, 5)
        schedule = random_schedule(exchange, "HARMONIC", generator, workers)
        speeds = [generator.uniform(1, 20) for _ in range(workers)]
        play = Play(schedule, speeds, stops=generator.uniform(0, 20), check=conserved).run()
        assert all(player.stopped for player in play.players)
        for cut in (each for each in play.log if isinstance(each, Cut)):
            player = play.players[cut.worker]
            assert cut.passes == player.passes < schedule.total
            cuts += 1
    assert cuts > 20


@pytest.mark.parametrize(
    ("passes", "batches", "total"),
    # K' = A + ⌊K - (A + 1)/2⌋, and the part of a pass that is over
    [("10", 1, "10"), ("10", 4, "11"), ("10", 5, "12"), ("21/2", 4, "23/2"), ("4", 4, "5"), ("1/2", 1, "1/2")],
)
def test_how_many_passes_a_worker_makes(passes: str, batches: int, total: str) -> None:
    """Eq. 6."""
    assert Agwu(Idpa(20, 2, batches), Fraction(passes)).total == Fraction(total)


def test_more_batches_than_passes() -> None:
    with pytest.raises(UserError, match="num_batches is 4, but the data are trained only 3 times; use num_batches: 3"):
        Sgwu(Idpa(20, 2, 4), Fraction(7, 2))


def test_a_worker_without_samples_waits_for_the_next_batch() -> None:
    """The quick one has all 3 samples of batch 1. Known better, the other gets those of the next; it missed a pass."""
    schedule = Agwu(Idpa(9, 2, 3), Fraction(4))
    assert schedule.begin([1000.0, 1.0]) == [Send(Order(0, 0, Fraction(1), Fraction(0), ((0, 3),), batch=1))]
    assert [node.state for node in schedule.nodes] == [State.TRAINING, State.PARKED]
    schedule.nodes[1].time = 1000.0
    _, mine, other = schedule.submitted(Report(0, Fraction(1), 1, 3, 3000.0))
    assert mine == Send(Order(0, 1, Fraction(2), Fraction(1), (), batch=2))
    assert other == Send(Order(1, 1, Fraction(2), Fraction(1), ((3, 6),), batch=2))
    assert [node.state for node in schedule.nodes] == [State.TRAINING, State.TRAINING]


def test_a_worker_that_never_gets_samples_is_let_go_at_the_end() -> None:
    schedule = Agwu(Udpa(1, 2), Fraction(2))
    assert schedule.begin([None, None]) == [Send(Order(0, 0, Fraction(1), Fraction(0), ((0, 1),), batch=1))]
    schedule.submitted(Report(0, Fraction(1), 1, 1, 1.0))
    _, mine, other = schedule.submitted(Report(0, Fraction(2), 1, 1, 1.0))
    assert isinstance(mine, Send) and mine.order.stop
    assert other == Send(Order(1, 0, weights=False, stop=True))
    assert schedule.done


def test_it_takes_over_when_the_others_have_died() -> None:
    schedule = Sgwu(Udpa(1, 2), Fraction(2))
    schedule.begin([None, None])
    assert schedule.lost(0) == [Lost((0,)), Send(Order(1, 0, Fraction(1), Fraction(0), ((0, 1),), batch=1))]
    with pytest.raises(RunError, match="the last computing node has left; nobody can train the 1 samples"):
        schedule.lost(1)


def test_what_a_lost_worker_had_comes_with_the_next_orders_of_the_others() -> None:
    """Of 12 samples, 4 each, workers 0 and 2 get 2 more when worker 1 dies; it may be told twice."""
    schedule = Agwu(Udpa(12, 3), Fraction(3))
    schedule.begin([None] * 3)
    assert schedule.lost(1) == [Lost((1,))]
    assert schedule.lost(1) == []
    assert schedule.workers(State.LOST) == (1,)
    *_, send = schedule.submitted(Report(0, Fraction(1), 1, 4, 1.0))
    assert send == Send(Order(0, 1, Fraction(2), Fraction(1), ((4, 6),), batch=1))
    *_, send = schedule.submitted(Report(2, Fraction(1), 1, 4, 1.0))
    assert send == Send(Order(2, 2, Fraction(2), Fraction(1), ((6, 8),), batch=1))
    *_, send = schedule.submitted(Report(0, Fraction(2), 1, 6, 1.0))
    assert send == Send(Order(0, 3, Fraction(3), Fraction(2), batch=1))


def test_a_worker_that_has_done_all_its_passes_takes_nothing_over() -> None:
    """Nobody would train it. The second time, the finished worker's process has ended, too."""
    for also_dead in (False, True):
        schedule = Agwu(Udpa(12, 3), Fraction(1))
        schedule.begin([None] * 3)
        schedule.submitted(Report(0, Fraction(1), 1, 4, 1.0))
        if also_dead:
            assert schedule.lost(0) == []
        schedule.lost(2)
        assert [node.pending for node in schedule.nodes] == [[], [(8, 12)], []]
        assert not schedule.done
        schedule.submitted(Report(1, Fraction(1), 1, 4, 1.0))
        assert schedule.done


def test_progress_is_passes_by_samples() -> None:
    """Worker 0 has 10 of 30 samples, and worker 1 has 20; both are to make 4 passes."""
    schedule = Agwu(Idpa(30, 2, 1), Fraction(4))
    assert schedule.progress == 0
    schedule.begin([1.0, 2.0])
    schedule.submitted(Report(1, Fraction(1), 1, 20, 1.0))
    assert schedule.progress == Fraction(20, 120)
    schedule.submitted(Report(0, Fraction(1), 1, 10, 1.0))
    schedule.submitted(Report(0, Fraction(2), 1, 10, 1.0))
    assert schedule.progress == Fraction(40, 120)
