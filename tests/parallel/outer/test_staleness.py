"""Rules of staleness and local updates by speed: by hand, and in schedules on a virtual clock."""

from __future__ import annotations

from fractions import Fraction

import pytest

from bpt.config.plan.run_plan import AgwuSpec, OuterSpec, ParallelSpec
from bpt.config.proto import bpt_pb2 as pb
from bpt.parallel.outer.agwu import Agwu
from bpt.parallel.outer.asgd import Asgd
from bpt.parallel.outer.idpa import Idpa, Udpa
from bpt.parallel.outer.outer_instructions import (
    ApplyGradient,
    AverageSubmitted,
    Discard,
    Merge,
    OuterInstruction,
    SendOrder,
)
from bpt.parallel.outer.sgwu import Sgwu
from bpt.parallel.outer.staleness import AS_SUBMITTED, Correction, StalenessRule
from tests.parallel.outer.play import BATCH, Play, conserved

_Rule = pb.AgwuParameter
BY_SPEED = AgwuSpec(local_updates=_Rule.BY_SPEED)


def settings(rule: int, **others: float) -> ParallelSpec:
    return ParallelSpec(agwu_param=AgwuSpec(staleness=rule, **others))  # type: ignore[arg-type]


def agwu(rule: int, speeds: list[float], **others: float) -> Play:
    """Two passes over as many samples for each worker."""
    return Play(
        Agwu(Udpa(2 * BATCH * len(speeds), len(speeds)), Fraction(4), settings=settings(rule, **others)), speeds
    )


@pytest.mark.parametrize(("fresh", "factors"), [(1, [1, 1, 1 / 2, 1 / 3, 1 / 4]), (3, [1, 1, 1, 1, 3 / 4])])
def test_inverse(fresh: int, factors: list[float]) -> None:
    rule = StalenessRule(AgwuSpec(staleness=_Rule.INVERSE), 4, fresh)
    assert [rule.damping(staleness) for staleness in range(5)] == pytest.approx(factors)


@pytest.mark.parametrize(("limit", "least"), [(0, 8), (3, 3)])
def test_discard(limit: int, least: int) -> None:
    rule = StalenessRule(AgwuSpec(staleness=_Rule.DISCARD, staleness_limit=limit), 4)
    assert [rule.discards(staleness) for staleness in range(10)] == [staleness >= least for staleness in range(10)]
    assert not StalenessRule(AgwuSpec(staleness_limit=1), 4).discards(9)


def test_a_table_by_hand() -> None:
    """Worker 1 has three times the samples of worker 0. An entry of a lost worker counts no more."""
    rule, share = StalenessRule(AgwuSpec(staleness=_Rule.TABLE), 2), (0.5, 1.5).__getitem__
    assert rule.correction(1, share) == Correction(table=((1, 1.5),))
    assert rule.correction(0, share) == Correction(table=((0, 0.25), (1, 0.75)))
    rule.forget(1)
    assert rule.correction(0, share) == Correction(table=((0, 0.5),))
    resumed = StalenessRule(AgwuSpec(staleness=_Rule.TABLE), 2)
    resumed.remember(0)
    assert resumed.correction(1, share) == Correction(table=((0, 0.25), (1, 0.75)))


def test_compensation_is_for_the_mean_of_the_iterations() -> None:
    """(G / p)² p = G² / p."""
    rule = StalenessRule(AgwuSpec(staleness=_Rule.COMPENSATE, compensation=0.5), 2)
    assert rule.correction(0, float, 4) == Correction(0.125)
    assert StalenessRule(AgwuSpec(compensation=0.5), 2).correction(0, float) == AS_SUBMITTED


def test_agwu_discards_and_the_worker_continues_with_the_newest_weights() -> None:
    """The slow worker has missed four versions; its next submission, when the quick one has ended, none."""
    play = agwu(_Rule.DISCARD, [4.0, 0.99], staleness_limit=2).run()
    (dropped,) = (each for each in play.log if isinstance(each, Discard))
    assert (dropped.update.worker, dropped.update.staleness) == (1, 4)
    after = play.log[play.log.index(dropped) + 1]
    assert isinstance(after, SendOrder) and after.order.version == 4 and after.order.weights
    merged = [each.update.worker for each in play.log if isinstance(each, Merge)]
    assert merged == [0] * 4 + [1] * 3


def test_agwu_divides_by_staleness() -> None:
    play = agwu(_Rule.INVERSE, [4.0, 0.99]).run()
    found = {each.update.staleness: each.update.damping for each in play.log if isinstance(each, Merge)}
    assert found == {0: 1.0, 4: 0.25}


def test_a_table_of_agwu_weighs_by_samples() -> None:
    """IDPA gives the quick one three times the samples."""
    schedule = Agwu(Idpa(16 * BATCH, 2, 1), Fraction(3), by_samples=True, settings=settings(_Rule.TABLE))
    play = Play(schedule, [3.0, 1.0], frequencies=[3.0, 1.0]).run()
    tables = [each.correction.table for each in play.log if isinstance(each, Merge)]
    assert tables[0] in (((0, 1.5),), ((1, 0.5),)) and tables[1:] == [((0, 0.75), (1, 0.25))] * (len(tables) - 1)


def test_asgd_by_rule() -> None:

    def log(kind: int) -> list[OuterInstruction]:
        schedule = Asgd(Udpa(8 * BATCH, 2), Fraction(1), settings=settings(kind, staleness_limit=2))
        return Play(schedule, [3.0, 0.99]).run().log

    inverse, compensate, discard = map(log, (_Rule.INVERSE, _Rule.COMPENSATE, _Rule.DISCARD))
    for each in inverse:
        if isinstance(each, ApplyGradient):
            assert each.update.damping == 1 / max(1, each.update.staleness)
    corrections = {each.correction for each in compensate if isinstance(each, ApplyGradient)}
    assert corrections == {Correction(AgwuSpec().compensation)}
    dropped = [each.update for each in discard if isinstance(each, Discard)]
    assert dropped and all(update.worker == 1 and update.staleness >= 2 for update in dropped)
    applied = sum(isinstance(each, ApplyGradient) for each in discard)
    assert applied + len(dropped) == 8  # nothing is lost otherwise


@pytest.mark.parametrize("kind", [Agwu, Sgwu])
def test_workers_train_as_long_as_the_quickest_pass(kind: type[Agwu] | type[Sgwu]) -> None:
    """Of 40 samples each the second trains a half and the third a quarter, from its second order on."""
    schedule = kind(Udpa(120, 3), Fraction(4), settings=ParallelSpec(agwu_param=BY_SPEED))
    play = Play(schedule, [4.0, 2.0, 1.0], check=conserved).run()
    orders = [each.order for each in play.log if isinstance(each, SendOrder) and not each.order.stop]
    lengths = [{order.until - order.passes for order in orders if order.worker == worker} for worker in range(3)]
    assert {Fraction(1)} == lengths[0] and Fraction(1, 2) in lengths[1] and Fraction(1, 4) in lengths[2]
    assert schedule.done and schedule.progress == 1


def test_who_is_left_trains_whole_passes() -> None:
    """Once the quick ones have ended the slow one is the quickest."""
    play = Play(
        Agwu(Udpa(80, 2), Fraction(2), settings=ParallelSpec(agwu_param=BY_SPEED)), [8.0, 1.0], hints=True
    ).run()
    last = [each.order for each in play.log if isinstance(each, SendOrder) and not each.order.stop][-1]
    assert last.worker == 1 and last.until == 2


@pytest.mark.parametrize("kind", [Agwu, Sgwu])
def test_steps_of_an_outer_optimizer(kind: type[Agwu] | type[Sgwu]) -> None:
    """Under SGWU a version has the changes of all workers: there is nothing to delay."""
    param = ParallelSpec(outer_param=OuterSpec(type=pb.OuterParameter.DELAYED_NESTEROV, lr=1, momentum=0.5))
    log = Play(kind(Udpa(2 * BATCH, 2), Fraction(3), settings=param), [1.0, 1.0]).run().log
    uses = [each.step and each.step.uses_momentum for each in log if isinstance(each, (Merge, AverageSubmitted))]
    assert uses == ([False, True] * 3 if kind is Agwu else [True] * 3)
