"""AGWU by hand (Alg. 3.1, Alg. 3.2, Eq. 9), and on a virtual clock."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest

from bpt.data.sample_partition import size
from bpt.parallel.outer.agwu import Agwu
from bpt.parallel.outer.idpa import Idpa, Udpa
from bpt.parallel.outer.outer_instructions import Lost, Merge, Order, SendOrder, SubmissionReport
from bpt.parallel.outer.update_factors import AgwuUpdate, Normalizer
from tests.parallel.outer.play import Play


def test_batches_of_samples_by_hand() -> None:
    """Alg. 3.1 under AGWU: 24 samples in 3 batches, K = 3 so K' = 4. Worker 1 looks thrice as quick, and is as slow.

    Batch 1: 2 and 6. Worker 0 is done first, in 2 s; of worker 1 it is known that 3 samples took 3 s. T_2 = 16 / 2,
    so each is to have 8: 6 more and 2 more. Then batch 3: 4 more each.
    """
    schedule = Agwu(Idpa(24, 2, 3), Fraction(3))
    first, second = schedule.begin([1.0, 3.0])
    assert first == SendOrder(Order(0, 0, Fraction(1), Fraction(0), ((0, 2),), batch=1))
    assert second == SendOrder(Order(1, 0, Fraction(1), Fraction(0), ((2, 8),), batch=1))
    assert schedule.hands_out(0) and schedule.hands_out(1)
    schedule.progressed(1, 3, 3.0)
    *_, send = schedule.submitted(SubmissionReport(0, Fraction(1), 1, 2, 2.0))
    assert send == SendOrder(Order(0, 1, Fraction(2), Fraction(1), ((8, 14),), batch=2))
    assert not schedule.hands_out(1)  # it ends its first pass, and the second batch is out
    *_, send = schedule.submitted(SubmissionReport(1, Fraction(1), 1, 6, 6.0))
    assert send == SendOrder(Order(1, 2, Fraction(2), Fraction(1), ((14, 16),), batch=2))
    *_, send = schedule.submitted(SubmissionReport(1, Fraction(2), 1, 8, 8.0))
    assert send == SendOrder(Order(1, 3, Fraction(3), Fraction(2), ((20, 24),), batch=3))
    assert not schedule.hands_out(0)
    *_, send = schedule.submitted(SubmissionReport(0, Fraction(2), 1, 8, 8.0))
    assert send == SendOrder(Order(0, 4, Fraction(3), Fraction(2), ((16, 20),), batch=3))
    *_, send = schedule.submitted(SubmissionReport(0, Fraction(3), 1, 12, 12.0))
    assert send == SendOrder(Order(0, 5, Fraction(4), Fraction(3), batch=3))
    *_, send = schedule.submitted(SubmissionReport(0, Fraction(4), 1, 12, 12.0))
    assert send == SendOrder(Order(0, 6, Fraction(4), Fraction(4), weights=False, stop=True))
    assert not schedule.done


def test_local_epochs_begin_when_all_samples_are_handed_out() -> None:
    """Two batches and K = 5: K' = 2 + 3 = 5 passes, of which the worker submits after 1, 4 and 5."""
    play = Play(Agwu(Idpa(20, 1, 2), Fraction(5), local_epochs=3), [10.0]).run()
    orders = [each.order for each in play.log if isinstance(each, SendOrder)]
    assert [(order.passes, order.until, order.runs) for order in orders[:-1]] == [
        (0, 1, ((0, 10),)), (1, 4, ((10, 20),)), (4, 5, ())
    ]  # fmt: skip
    assert orders[-1].stop
    assert play.now == 1 + 3 * 2 + 2


def test_the_last_pass_may_be_a_part_of_one() -> None:
    play = Play(Agwu(Udpa(20, 2), Fraction(9, 4)), [10.0, 5.0]).run()
    orders = [each.order for each in play.log if isinstance(each, SendOrder)]
    assert [order.until for order in orders if order.worker] == [
        1, 2, Fraction(9, 4), Fraction(9, 4)
    ]  # fmt: skip
    assert [player.trained for player in play.players] == [23, 23]  # 2.25 × 10, in whole samples


def test_updates_by_hand() -> None:
    """Alg. 3.2 with three workers, the third of which is slow. Each order brings the version that was just made."""
    schedule = Agwu(Udpa(30, 3), Fraction(2))
    schedule.begin([None] * 3)

    def submit(worker: int, passes: int, accuracy: float) -> AgwuUpdate:
        merge, send = schedule.submitted(SubmissionReport(worker, Fraction(passes), 1, 10, 1.0, accuracy=accuracy))
        assert isinstance(merge, Merge) and isinstance(send, SendOrder)
        assert (send.order.worker, send.order.version) == (worker, merge.update.version)
        return merge.update

    # i - 1 = 0: k/(i-1) counts as 0, so 1 / (1 + 1)
    assert submit(0, 1, 0.5) == AgwuUpdate(0, base=0, newest=0, gamma=0.5, accuracy=0.5)
    # i - 1 = 1, k = 0, k' = 1 and 0: 1 / (e + 1)
    update = submit(1, 1, 0.8)
    assert (update.base, update.newest, update.accuracy) == (0, 1, 0.8)
    assert update.gamma == pytest.approx(0.268941, abs=1e-6)
    # i - 1 = 2, k = 1, k' = 2 and 0: e^0.5 / (e + 1). Then it has done its passes; others have begun before.
    assert submit(0, 2, 1.0).factor == pytest.approx(0.443409, abs=1e-6)
    # i - 1 = 3, k = 2, k' = 3 and 0: e^(2/3) / (e + 1)
    assert submit(1, 2, 0.5).gamma == pytest.approx(0.523826, abs=1e-6)
    # i - 1 = 4, k = 0, k' = 3 and 4: 1 / (e^(3/4) + e)
    update = submit(2, 1, 0.25)
    assert (update.staleness, update.gamma) == (4, pytest.approx(0.206813, abs=1e-6))
    # It is alone now.
    assert submit(2, 2, 0.5).gamma == 1.0


def test_weighted_by_samples_by_hand() -> None:
    """Worker 0 has 20 of 30 samples: 4/3 of what a worker has in the mean; worker 1 has 10: 2/3."""
    schedule = Agwu(Idpa(30, 2, 1), Fraction(2), by_samples=True)
    schedule.begin([2.0, 1.0])
    merge, _ = schedule.submitted(SubmissionReport(0, Fraction(1), 1, 20, 1.0, accuracy=0.75))
    assert isinstance(merge, Merge)
    assert (merge.update.share, merge.update.gamma, merge.update.factor) == (4 / 3, 1.0, 1.0)
    merge, _ = schedule.submitted(SubmissionReport(1, Fraction(1), 1, 10, 1.0, accuracy=0.75))
    assert isinstance(merge, Merge)
    assert merge.update.factor == pytest.approx(math.exp(-1) * 0.5)  # k = 0 and k' = 1 of 1


def test_all_workers_as_the_normalizer() -> None:
    schedule = Agwu(Udpa(2, 2), Fraction(2), normalizer=Normalizer.ALL)
    schedule.begin([None] * 2)
    merge, _ = schedule.submitted(SubmissionReport(0, Fraction(1), samples=1))
    assert merge == Merge(AgwuUpdate(0, 0, 0, gamma=0.5, accuracy=1.0))
    merge, _ = schedule.submitted(SubmissionReport(1, Fraction(1), samples=1))
    assert isinstance(merge, Merge)
    assert merge.update.gamma == pytest.approx(1 / (math.e + 1))


def test_a_worker_without_samples_does_not_count() -> None:
    """... in Eq. 9 until it starts: with one other, γ is 1."""
    schedule = Agwu(Udpa(2, 3), Fraction(2))
    schedule.begin([None] * 3)
    assert schedule.versions.workers == (0, 1)
    assert schedule.submitted(SubmissionReport(0, Fraction(1), samples=1))[0] == Merge(
        AgwuUpdate(0, 0, 0, gamma=1.0, accuracy=1.0)
    )


def test_one_worker_replaces_the_global_weights() -> None:
    play = Play(Agwu(Udpa(10, 1), Fraction(5)), [1.0]).run()
    updates = [each.update for each in play.log if isinstance(each, Merge)]
    assert updates == [AgwuUpdate(0, base=i, newest=i, gamma=1.0, accuracy=1.0) for i in range(5)]
    assert all(update.replaces for update in updates)


def test_a_worker_ten_times_slower_stops_nobody() -> None:
    """Whoever submits has its next order at once, with weights; so the others are done when their work is."""
    waiting: list[int] = []

    def check(play: Play) -> None:
        waiting.append(sum(player.order is None and not player.stopped for player in play.players))

    play = Play(Agwu(Udpa(400, 4), Fraction(20)), [10.0, 10.0, 10.0, 1.0], check=check).run()
    assert [player.ended for player in play.players] == pytest.approx([200.0, 200.0, 200.0, 2000.0])
    assert set(waiting) == {0}
    stalest = max(each.update.staleness for each in play.log if isinstance(each, Merge))
    assert stalest >= 27  # the slow one's first: nine or ten passes of each of the others are in between


def test_bounded_staleness_holds_a_worker_that_is_ahead() -> None:
    """Two workers, bound 2: the quick one makes two versions, and its third submission waits for the slow one.

    That is then 2 stale; of its next base, 3, the quick one's fourth and fifth version are not too far.
    """
    schedule = Agwu(Udpa(2, 2), Fraction(4), max_staleness=2)
    schedule.begin([None] * 2)
    for passes in (1, 2):
        assert len(schedule.submitted(SubmissionReport(0, Fraction(passes), samples=1))) == 2
    assert schedule.submitted(SubmissionReport(0, Fraction(3), samples=1, accuracy=0.5)) == []
    slow, slows_order, quick, quicks_order = schedule.submitted(SubmissionReport(1, Fraction(1), samples=1))
    assert isinstance(slow, Merge) and isinstance(quick, Merge)
    assert (slow.update.worker, slow.update.base, slow.update.newest) == (1, 0, 2)
    assert (quick.update.worker, quick.update.base, quick.update.newest, quick.update.accuracy) == (0, 2, 3, 0.5)
    assert slows_order == SendOrder(Order(1, 3, Fraction(2), Fraction(1), batch=1))
    assert quicks_order == SendOrder(Order(0, 4, Fraction(4), Fraction(3), batch=1))


def test_who_is_held_goes_on_when_the_one_it_waits_for_dies() -> None:
    schedule = Agwu(Udpa(2, 2), Fraction(4), max_staleness=1)
    schedule.begin([None] * 2)
    schedule.submitted(SubmissionReport(0, Fraction(1), samples=1))
    assert schedule.submitted(SubmissionReport(0, Fraction(2), samples=1)) == []
    lost, merge, send = schedule.lost(1)
    assert lost == Lost((1,))
    assert merge == Merge(AgwuUpdate(0, base=1, newest=1, gamma=1.0, accuracy=1.0))
    assert send == SendOrder(Order(0, 2, Fraction(3), Fraction(2), ((1, 2),), batch=1))


def test_what_a_worker_had_submitted_when_it_died_is_dropped() -> None:
    schedule = Agwu(Udpa(2, 2), Fraction(4), max_staleness=1)
    schedule.begin([None] * 2)
    schedule.submitted(SubmissionReport(0, Fraction(1), samples=1))
    assert schedule.submitted(SubmissionReport(0, Fraction(2), samples=1)) == []  # held
    assert schedule.lost(0) == [Lost((0,))]
    merge, _ = schedule.submitted(SubmissionReport(1, Fraction(1), samples=1))
    assert merge == Merge(AgwuUpdate(1, base=0, newest=1, gamma=1.0, accuracy=1.0))


SPEEDS = [40.0, 20.0, 10.0, 5.0]
N, PASSES, BATCHES = 60_000, 20, 5


def test_with_hints_idpa_is_near_the_ideal_though_all_frequencies_look_alike() -> None:
    """The quickest hands out a batch before the slowest, with 3000 samples of the first one, has ended its first pass.

    K' = 5 + 17 passes over 60,000 samples at 75 samples a second. Without hints, the slowest gets far too much.
    """
    ideal = N / sum(SPEEDS) * 22
    play = Play(Agwu(Idpa(N, 4, BATCHES), Fraction(PASSES)), SPEEDS, hints=True).run()
    assert play.now == pytest.approx(ideal, rel=0.04)
    shares = [size(player.runs) / N for player in play.players]
    assert shares == pytest.approx([speed / 75 for speed in SPEEDS], rel=0.02)
    assert min(player.ended for player in play.players) > 0.9 * play.now
    blind = Play(Agwu(Idpa(N, 4, BATCHES), Fraction(PASSES)), SPEEDS).run()
    assert blind.now > 1.2 * play.now


def test_a_node_that_slows_down_between_batches_is_followed() -> None:
    """From the start of its second pass, worker 0 is half as quick, as all others then are."""
    schedule = Agwu(Idpa(12_000, 3, 6), Fraction(20))
    play = Play(schedule, [20.0, 10.0, 10.0], [2.0, 1.0, 1.0], hints=True, changes=[(1.0, 0, 10.0)]).run()
    assert [size(player.runs) for player in play.players] == pytest.approx([4000] * 3, rel=0.05)
    ended = [player.ended for player in play.players]
    assert max(ended) < 1.05 * min(ended)


def test_k_by_the_mean_over_all_samples() -> None:
    """Eq. 6: though samples of later batches come later, N · K' samples less those that came late are N · K, or up to
    half a pass less."""
    for batches in range(1, 8):
        play = Play(Agwu(Idpa(840, 2, batches), Fraction(9)), [1.0, 1.0], [1.0, 1.0], hints=True).run()
        assert 840 * 8.5 <= sum(player.trained for player in play.players) <= 840 * 9
