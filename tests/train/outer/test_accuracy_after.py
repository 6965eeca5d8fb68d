"""Q of the weights at the end of an epoch, and submissions of nothing: whole runs, and their schedule."""

from __future__ import annotations

from fractions import Fraction

import pytest

from bpt.parallel.outer.agwu import Agwu
from bpt.parallel.outer.idpa import Udpa
from bpt.parallel.outer.outer_instructions import AverageSubmitted, Order, SendOrder, SubmissionReport
from bpt.parallel.outer.sgwu import Sgwu
from bpt.train.outer.report import read_csv
from bpt.train.outer.trainer import Trainer
from tests.train.outer.outer_runs import assert_equal, outer, weights

pytestmark = pytest.mark.usefixtures("folder")


AFTER = "agwu_param { accuracy: AFTER_EPOCH }"


@pytest.mark.parametrize("ranks", [2, 3])
def test_training_goes_on_as_if_nothing_had_been_examined(ranks: int) -> None:
    """Of one worker Q does not count: the same bits, with BatchNorm, Dropout and batches over the ends of passes. Also
    with a worker of two shards."""
    way = "exchange: SGWU" if ranks == 2 else "exchange: SGWU num_shards: 2"
    outer(ranks, way)
    expected, during = weights(), [row.accuracy for row in read_csv("small_run").updates]
    outer(ranks, f"{way} {AFTER}", "snapshot_prefix: 'after'")
    assert_equal(weights(prefix="after"), expected)
    after = [row.accuracy for row in read_csv("after_run").updates]
    assert len(after) == len(during) and all(0 <= accuracy <= 1 for accuracy in after)


def test_weights_that_stay_give_the_accuracy_of_training(monkeypatch: pytest.MonkeyPatch) -> None:
    """Examined by iterations of the same numbers, so with the same masks, it is what was counted while they trained."""
    seen: list[tuple[int, int]] = []
    real = Trainer.examine

    def examine(self: Trainer, iterations: int) -> None:
        before = self._accuracy.take()
        after, self._runtime.iteration = self._runtime.iteration, self._runtime.iteration - 1
        real(self, iterations)
        self._runtime.iteration = after
        again = self._accuracy.take()
        seen.append((before.correct, again.correct))
        assert before.counted == again.counted > 0

    monkeypatch.setattr(Trainer, "examine", examine)
    # Batches of 2 x 6 of 22 samples: of an epoch of one iteration after the first order, masks are those of training.
    outer(2, f"exchange: SGWU {AFTER}", "base_lr: 0 iter_size: 1 max_iter: 9")
    assert seen


def test_who_has_trained_nothing_makes_no_version() -> None:
    agwu = Agwu(Udpa(20, 2), Fraction(3))
    agwu.begin([None] * 2)
    agwu.submitted(SubmissionReport(0, Fraction(1), 1, 10, 1.0))
    assert agwu.submitted(SubmissionReport(1, Fraction(1))) == [
        SendOrder(Order(1, 1, Fraction(2), Fraction(1), batch=1))
    ]
    assert agwu.versions.newest == 1 and agwu.versions.base(1) == 1
    sgwu = Sgwu(Udpa(20, 2), Fraction(3))
    sgwu.begin([None] * 2)
    sgwu.submitted(SubmissionReport(0, Fraction(1), accuracy=0.5))
    average, *_ = sgwu.submitted(SubmissionReport(1, Fraction(1), 1, 10, 1.0, accuracy=0.25))
    assert average == AverageSubmitted((1,), (1.0,), 1)
    sgwu.submitted(SubmissionReport(0, Fraction(2)))
    first, second = sgwu.submitted(SubmissionReport(1, Fraction(2)))
    assert isinstance(first, SendOrder) and isinstance(second, SendOrder) and first.order.version == 1
