"""The schedule that a text asks for."""

from __future__ import annotations

from fractions import Fraction

import pytest

from bpt.base.errors import UserError
from bpt.config.plan.run_plan import OUTER
from bpt.config.proto import bpt_pb2 as pb
from bpt.parallel.outer.agwu import Agwu
from bpt.parallel.outer.asgd import Asgd
from bpt.parallel.outer.base import OuterSchedule
from bpt.parallel.outer.exchanges import make_schedule, passes_of
from bpt.parallel.outer.idpa import DivisionRule, Idpa, Udpa
from bpt.parallel.outer.outer_instructions import ApplyGradient, Merge, SendOrder, SubmissionReport
from bpt.parallel.outer.sgwu import Sgwu
from tests.parallel.outer.play import Play
from tests.support.training import solver_of


def made(text: str, samples: int = 12, workers: int = 3, passes: Fraction = Fraction(4)) -> OuterSchedule:
    return make_schedule(solver_of(f"parallel_param {{ {text} }}"), samples, workers, passes)


def test_passes() -> None:
    """Ten iterations of 2 × 32 samples go 10.66... times through 60."""
    assert passes_of(10, 64, 60) == Fraction(32, 3)
    assert passes_of(1, 1, 60_000) == Fraction(1, 60_000)


@pytest.mark.parametrize(("exchange", "kind"), [("SGWU", Sgwu), ("AGWU", Agwu), ("ASGD", Asgd)])
def test_the_exchange(exchange: str, kind: type[OuterSchedule]) -> None:
    schedule = made(f"exchange: {exchange}")
    assert type(schedule) is kind
    assert pb.ParallelParameter.Exchange.Value(exchange) in OUTER
    assert len(schedule.nodes) == 3 and schedule.total == 4


def test_what_is_not_of_the_outer_layer() -> None:
    others = set(map(pb.ParallelParameter.Exchange.Value, ("ALLREDUCE", "TREE", "CGDP", "RING", "LOCAL")))
    assert set(OUTER) | others == set(pb.ParallelParameter.Exchange.values())
    assert not set(OUTER) & others


def test_uniform_is_udpa() -> None:
    """All samples at once, to all workers alike, whatever their frequencies are."""
    schedule = made("exchange: SGWU balance: UNIFORM balance_param { num_batches: 3 rule: PAPER }")
    assert isinstance(schedule.idpa, Udpa)
    sends = schedule.begin([1.0, 2.0, 3.0])
    assert [each.order.runs for each in sends if isinstance(each, SendOrder)] == [((0, 4),), ((4, 8),), ((8, 12),)]


def test_idpa() -> None:
    """Two batches: 6 samples in the first, by frequency; K' = 2 + ⌊4 - 1.5⌋."""
    schedule = made("exchange: AGWU balance: IDPA balance_param { num_batches: 2 }")
    assert type(schedule.idpa) is Idpa and schedule.idpa.rule is DivisionRule.HARMONIC
    sends = schedule.begin([1.0, 2.0, 3.0])
    assert [each.order.runs for each in sends if isinstance(each, SendOrder)] == [((0, 1),), ((1, 3),), ((3, 6),)]
    assert schedule.total == 4
    assert made("exchange: AGWU balance: IDPA balance_param { rule: PAPER }").idpa.rule is DivisionRule.PAPER


def test_of_sgwu() -> None:
    schedule = made("exchange: SGWU agwu_param { local_epochs: 3 }")
    sends = schedule.begin([None] * 3)
    assert [each.order.until for each in sends if isinstance(each, SendOrder)] == [3, 3, 3]


@pytest.mark.parametrize(("normalizer", "gamma"), [("OTHERS", 1 / 2), ("ALL", 1 / 3)])
def test_of_agwu(normalizer: str, gamma: float) -> None:
    """At the first version, all count 1 in Eq. 9. With a bound of 2, three workers take turns."""
    schedule = made(f"exchange: AGWU agwu_param {{ normalizer: {normalizer} local_epochs: 2 max_staleness: 2 }}")
    sends = schedule.begin([None] * 3)
    assert [each.order.until for each in sends if isinstance(each, SendOrder)] == [2, 2, 2]
    merge, _ = schedule.submitted(SubmissionReport(0, Fraction(2), samples=1))
    assert isinstance(merge, Merge) and merge.update.gamma == gamma
    assert schedule.submitted(SubmissionReport(0, Fraction(4), samples=1)) == []


def test_of_asgd() -> None:
    schedule = made("exchange: ASGD agwu_param { push: 2 fetch: 3 }", samples=30)
    send, *_ = schedule.begin([None] * 3)
    assert isinstance(send, SendOrder) and send.order.iterations == 2
    descend, send = schedule.submitted(SubmissionReport(0, Fraction(2, 10), 2, 2))
    assert isinstance(descend, ApplyGradient) and isinstance(send, SendOrder)
    assert not send.order.weights
    _, send = schedule.submitted(SubmissionReport(0, Fraction(4, 10), 2, 2))
    assert isinstance(send, SendOrder) and send.order.weights
    held = made("exchange: ASGD agwu_param { max_staleness: 2 }", samples=30)
    held.begin([None] * 3)
    assert len(held.submitted(SubmissionReport(0, Fraction(1, 10), 1, 1))) == 2
    assert held.submitted(SubmissionReport(0, Fraction(2, 10), 1, 1)) == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("balance: IDPA balance_param { num_batches: 5 }", "num_batches is 5, but the data are trained only 4 times"),
        ("balance: IDPA balance_param { num_batches: 13 }", "num_batches is 13, but there are only 12 samples"),
        ("agwu_param { max_staleness: 1 }", "max_staleness is 1, but of 3 workers that start together"),
    ],
)
def test_numbers_that_do_not_fit(text: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        made(f"exchange: AGWU {text}")


@pytest.mark.parametrize("exchange", ["AGWU", "ASGD", "SGWU"])
def test_who_ends_together(exchange: str) -> None:
    """Of 3 workers one slows down by a tenth; its last pass is shorter then, unless all are to make K' passes."""
    passes_each = "balance: IDPA balance_param { finish: PASSES }"
    for text, together in (("balance: IDPA", True), (passes_each, False), ("", False)):
        schedule = made(f"exchange: {exchange} {text}", samples=300, passes=Fraction(8))
        play = Play(schedule, [1.0, 1.0, 1.0], changes=[(250.0, 2, 0.9)]).run()
        passes = {player.passes for player in play.players}
        assert (len(passes) > 1) is (together and exchange != "SGWU")
