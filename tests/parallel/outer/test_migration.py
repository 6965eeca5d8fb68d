"""Samples that change hands between nodes that are alive: arithmetic by hand, and whole runs on a virtual clock."""

from __future__ import annotations

import random
from collections.abc import Callable
from fractions import Fraction

import pytest

from bpt.parallel.cluster.cluster import Cluster, Node
from bpt.parallel.outer.agwu import Agwu
from bpt.parallel.outer.asgd import Asgd
from bpt.parallel.outer.base import OuterSchedule
from bpt.parallel.outer.idpa import DivisionRule, Idpa
from bpt.parallel.outer.migration import Migration, PlannedMove, moves
from bpt.parallel.outer.outer_instructions import Lost, Migrated, Order, OuterInstruction, SendOrder, SubmissionReport
from bpt.parallel.outer.replay import Replay
from bpt.parallel.outer.sgwu import Sgwu
from bpt.parallel.outer.simulation.outcome import SimulationOutcome
from bpt.parallel.outer.simulation.simulator import SimulatedJob, simulate
from bpt.parallel.outer.worker_table import WorkerRecord, WorkerState
from tests.parallel.outer.play import BALANCES, Play, conserved


def divided(rule: DivisionRule = DivisionRule.HARMONIC, grain: int = 1) -> Idpa:
    """120 samples, 40 for each of three nodes, which took 0.1 s a sample."""
    idpa = Idpa(120, 3, 2, rule, grain=grain)
    idpa.first([None] * 3)
    idpa.next([0.1] * 3)
    assert idpa.allocated.counts == (40, 40, 40)
    return idpa


def test_moves_lead_from_what_there_is_to_what_is_wanted() -> None:
    assert moves([40, 40, 40], [54, 53, 13]) == [(2, 0, 14), (2, 1, 13)]
    assert moves([5, 0, 9, 6], [1, 9, 10, 0]) == [(0, 1, 4), (3, 1, 5), (3, 2, 1)]
    assert moves([1, 2], [1, 2]) == []


def test_a_slower_node_gives_samples_to_the_others() -> None:
    """Node 2 takes 0.4 s: speeds are 10, 10 and 2.5, so 120 · 10/22.5 = 53.3, 53.3 and 13.3 end together.

    Of the sample that is over, the first of equal remainders has it. The longest pass takes
    40 · 0.4 s, then 54 · 0.1 s.
    """
    migration = Migration(idpa := divided())
    times = [0.1, 0.1, 0.4]
    assert [migration.has_changed(node, time) for node, time in enumerate(times)] == [False, False, True]
    migration.plan(times)
    assert migration.pop(0) == migration.pop(1) == []
    one, other = migration.pop(2)
    assert one.longest == other.longest == pytest.approx((16, 5.4))
    assert one == PlannedMove(2, 0, 14, (0.1, 0.4, 0.1, 0.1), one.longest)
    assert other == PlannedMove(2, 1, 13, (0.1, 0.4, 0.1, 0.1), one.longest)
    # Node 2 has [40, 60) of the first batch and [100, 120) of the second; what it got last goes.
    assert idpa.move(2, 0, 14) == ((106, 120),)
    assert idpa.move(2, 1, 13) == ((53, 60), (100, 106))
    assert idpa.allocated.runs == (
        ((0, 20), (60, 80), (106, 120)),
        ((20, 40), (80, 100), (53, 60), (100, 106)),
        ((40, 53),),
    )
    assert not migration.has_changed(2, 0.4)  # from now on, this is its pace


def test_what_is_too_little_moves_nothing() -> None:
    """Two nodes of 60 samples: 0.114 s is a change below 15 %; 0.12 s is more, but 65 · 0.1 s are 91 % of 7.2 s."""
    idpa = Idpa(120, 2, 2)
    idpa.first([None] * 2)
    idpa.next([0.1] * 2)
    migration = Migration(idpa)
    assert not migration.has_changed(1, 0.114) and migration.has_changed(1, 0.12)
    migration.plan([0.1, 0.12])
    assert not migration and migration.pop(1) == []
    migration.plan([0.1, 0.13])  # 7.8 s; then 68 · 0.1 s, which is 87 %
    assert [move.samples for move in migration.pop(1)] == [8]


def test_batches_that_stay_whole_move_whole() -> None:
    """12 batches of 10 at speeds of 10, 10 and 3.33: 12 · 10/23.33 = 5.1, 5.1 and 1.7."""
    migration = Migration(divided(grain=10))
    migration.plan([0.1, 0.1, 0.3])
    assert [(move.taker, move.samples) for move in migration.pop(2)] == [(0, 10), (1, 10)]


def test_every_node_keeps_a_sample() -> None:
    idpa = divided()
    migration = Migration(idpa)
    migration.plan([0.1, 0.1, 1e9])
    assert sum(move.samples for move in migration.pop(2)) == 39


def test_a_node_that_has_ended_gets_none() -> None:
    migration = Migration(idpa := divided())
    migration.plan([0.1, 0.1, 0.4])
    idpa.retire(0)
    assert [move.taker for move in migration.pop(2)] == [1]


def trained(worker: int, passes: int, samples: int, pace: float) -> SubmissionReport:
    return SubmissionReport(worker, Fraction(passes), samples, samples, samples * pace)


def orders(instructions: list[OuterInstruction]) -> dict[int, Order]:
    return {each.order.worker: each.order for each in instructions if isinstance(each, SendOrder)}


def test_sgwu_moves_samples_when_all_have_submitted() -> None:
    """The giver's order and the takers' are of one round, wherever the giver's number stands."""
    schedule = Sgwu(Idpa(120, 3, 1), Fraction(4), migrate=True)
    schedule.begin([None] * 3)
    for worker in (0, 1):
        schedule.submitted(trained(worker, 1, 40, 0.1))
    assert not any(isinstance(each, Migrated) for each in schedule.submitted(trained(2, 1, 40, 0.1)))
    for worker in (1, 2):
        assert schedule.submitted(trained(worker, 2, 40, 0.1)) == []
    first, second, *others = schedule.submitted(trained(0, 2, 40, 0.4))
    assert isinstance(first, Migrated) and first.longest == pytest.approx((16, 5.4))
    assert first == Migrated(0, 1, 14, (0.1, 0.4, 0.1, 0.1), first.longest)
    assert second == Migrated(0, 2, 13, (0.1, 0.4, 0.1, 0.1), first.longest)
    sent = orders(others)
    assert (sent[0].gives, sent[0].runs) == (((26, 40), (13, 26)), ())
    assert (sent[1].runs, sent[2].runs, sent[1].gives) == (((26, 40),), ((13, 26),), ())
    assert [node.samples for node in schedule.nodes] == [13, 54, 53]


def test_agwu_moves_samples_at_the_ends_of_passes() -> None:
    """Worker 1 becomes quicker while worker 0 is in its second pass: that gives its samples when it has ended it."""
    schedule = Agwu(Idpa(40, 2, 1), Fraction(6), migrate=True)
    schedule.begin([None] * 2)
    for worker in (0, 1):
        schedule.submitted(trained(worker, 1, 20, 0.3))
    quicker = schedule.submitted(trained(1, 2, 20, 0.1))
    assert not any(isinstance(each, Migrated) for each in quicker) and orders(quicker)[1].runs == ()
    moved, _, send = schedule.submitted(trained(0, 2, 20, 0.3))
    # Speeds of 3.3 and 10: 10 and 30 of 40 samples.
    assert isinstance(moved, Migrated) and moved.longest == pytest.approx((6, 3))
    assert moved == Migrated(0, 1, 10, (0.3, 0.3, 0.3, 0.1), moved.longest)
    assert isinstance(send, SendOrder) and send.order.gives == ((10, 20),)
    assert schedule.nodes[1].pending == [(10, 20)]
    _, send = schedule.submitted(trained(1, 3, 20, 0.1))
    assert isinstance(send, SendOrder) and send.order.runs == ((10, 20),)


def test_a_loss_ends_what_was_planned() -> None:
    """The samples of the lost worker are divided by the newest times, and all others stay where they are."""
    schedule = Agwu(Idpa(60, 3, 1), Fraction(6), migrate=True)
    schedule.begin([None] * 3)
    for worker in (0, 1, 2):
        schedule.submitted(trained(worker, 1, 20, 0.3))
    schedule.submitted(trained(1, 2, 20, 0.1))  # worker 1 is to get 8 samples of each of the others
    assert schedule.lost(1) == [Lost((1,))]
    for worker in (0, 2):
        instructions = schedule.submitted(trained(worker, 2, 20, 0.3))
        assert not any(isinstance(each, Migrated) for each in instructions)
        assert orders(instructions)[worker].gives == ()
    assert [node.samples for node in schedule.nodes] == [30, 0, 30]


SCHEDULES: dict[str, Callable[[Idpa, Fraction, bool], OuterSchedule]] = {
    "SGWU": lambda idpa, passes, migrate: Sgwu(idpa, passes, migrate=migrate),
    "AGWU": lambda idpa, passes, migrate: Agwu(idpa, passes, together=True, migrate=migrate),
    "AGWU, PASSES": lambda idpa, passes, migrate: Agwu(idpa, passes, migrate=migrate),
    "ASGD": lambda idpa, passes, migrate: Asgd(idpa, passes, push=4, together=True, migrate=migrate),
}


def simulated(exchange: str, passes: int, migrate: bool) -> SimulationOutcome:
    """Three nodes of 10 samples a second; after 16 s one of them has a quarter of its speed."""
    nodes = [Node("a", 10), Node("b", 10), Node("c", 10, changes=((16.0, 0.25),))]
    schedule = SCHEDULES[exchange](Idpa(120, 3, 1), Fraction(passes), migrate)
    return simulate(schedule, Cluster(tuple(nodes)), SimulatedJob(batch=1, weights=0, record=100))


def test_sgwu_ends_sooner_by_hand() -> None:
    """Four passes of 4 s. Without migration four of 16 s follow; with it one of these, and three of 54 · 0.1 s."""
    without, with_ = simulated("SGWU", 8, False), simulated("SGWU", 8, True)
    assert without.seconds == pytest.approx(16 + 4 * 16)
    assert with_.seconds == pytest.approx(16 + 16 + 3 * 5.4)
    assert [node.samples for node in with_.nodes] == [54, 53, 13]
    assert sum(node.trained for node in with_.nodes) == 8 * 120
    assert (without.data_bytes, with_.data_bytes) == (120 * 100, (120 + 27) * 100)  # where the server sends records


@pytest.mark.parametrize("exchange", ["AGWU", "AGWU, PASSES", "ASGD"])
def test_others_end_sooner(exchange: str) -> None:
    """The slow node gives samples when its pass of 16 s has ended; those that go to nodes ahead of it train less."""
    without, with_ = simulated(exchange, 20, False), simulated(exchange, 20, True)
    assert with_.seconds < 0.85 * without.seconds
    assert with_.nodes[2].samples < 20


def test_nothing_moves_while_speeds_stay() -> None:
    """IDPA has divided by the true speeds already: the run is that without migration, instruction by instruction."""

    def log(migrate: bool) -> list[OuterInstruction]:
        schedule = Agwu(Idpa(120, 3, 4), Fraction(8), migrate=migrate)
        return Play(schedule, [10.0, 5.0, 20.0], hints=True).run().log

    assert log(True) == log(False)


@pytest.mark.parametrize("balance", ["HARMONIC", "PAPER"])
@pytest.mark.parametrize("exchange", ["SGWU", "AGWU", "ASGD"])
def test_whatever_happens(exchange: str, balance: str) -> None:
    """Nodes change their speed, die, or get no samples: all samples stay, all runs end, and a replay repeats them."""
    moved = lost_too = 0
    for seed in range(120):
        generator = random.Random(seed)
        workers, batches = generator.randint(1, 5), generator.randint(1, 3)
        idpa = BALANCES[balance](generator.choice([batches, 12, 100]), workers, batches)
        passes = batches + Fraction(generator.randint(7, 30), 7)
        schedule: OuterSchedule
        if exchange == "SGWU":
            schedule = Sgwu(idpa, passes, generator.randint(1, 2), migrate=True)
        elif exchange == "AGWU":
            bound = generator.choice([0, workers + 1])
            schedule = Agwu(idpa, passes, max_staleness=bound, together=generator.random() < 0.5, migrate=True)
        else:
            schedule = Asgd(idpa, passes, generator.randint(1, 3), together=generator.random() < 0.5, migrate=True)
        dead = generator.sample(range(workers), generator.choice([0, 0, generator.randint(0, workers - 1)]))
        play = Play(
            schedule, [generator.choice([1, 2, 10]) * generator.uniform(1, 2) for _ in range(workers)],
            [generator.choice([None, 0.01, 1.0]) for _ in range(workers)],
            {worker: generator.uniform(0, 60) for worker in dead}, hints=generator.random() < 0.7, check=conserved,
            changes=[
                (generator.uniform(0, 40), generator.randrange(workers), generator.uniform(1, 20)) for _ in range(6)
            ],
        ).run()  # fmt: skip
        happened = any(isinstance(each, Migrated) for each in play.log)
        moved += happened
        lost_too += happened and bool(dead)
        assert schedule.idpa.done
        if not dead:
            assert schedule.progress == 1
            again = Play(Replay(play.log, workers, schedule.total), [1.0] * workers).run()
            assert [player.trained for player in again.players] == [player.trained for player in play.players]
            assert [each for each in again.log if not isinstance(each, SendOrder)] == [
                each for each in play.log if not isinstance(each, SendOrder)
            ]
    assert moved > 20 and lost_too


def test_short_passes_count_together() -> None:
    """A pass of 0.1 s may be slow by chance; from 0.4 s on a time counts, and a long pass counts by itself."""
    node = WorkerRecord(samples=10)
    steady = []
    for seconds in (0.1, 0.3, 0.2, 0.1, 0.1, 2.0):
        node.end_pass(seconds, 10)
        steady.append(node.steady)
    assert steady == [None, *[pytest.approx(0.4 / 20)] * 3, pytest.approx(0.4 / 30), pytest.approx(0.2)]
    node.state, node.reported = WorkerState.TRAINING, (0.5, 2)
    assert node.steady_seconds_per_sample() == node.steady  # too few of its samples
    node.reported = (0.5, 5)
    assert node.steady_seconds_per_sample() == 0.1
