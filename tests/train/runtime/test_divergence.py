"""A run that diverges ends before it spoils anything, and says where; by numbers that are worked out by hand."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from bpt.base.errors import DivergedError
from bpt.config.plan.resolve import read_plan
from bpt.system.comm.base import Communicator
from bpt.train.solver.solver import Solver
from tests.support.doubles.thread_ranks import run_ranks
from tests.train.runtime.summed_data import set_up, steps

# One weight w = 1: the loss of a sample is (w x)² / 2, and its gradient w x². float32 ends at 3.4e38.
OVERFLOWING = 1e20  # in the loss, which is 5e39
STEEP = 1e15  # loss 5e29, gradient 1e30: a rate of 1e10 makes the weight infinite


EXCHANGES = ["", "update: HOST", "update: HOST exchange: RING", "update: HOST exchange: CGDP"]


@pytest.mark.parametrize(("ranks", "exchange"), [(1, ""), *((2, exchange) for exchange in EXCHANGES)])
def test_the_blob_that_is_not_finite_first_is_named_before_an_update_is_made(
    summed: Path, ranks: int, exchange: str
) -> None:
    set_up(summed, [1.0, 1.0, 1.0, OVERFLOWING], 2)

    def run(comm: Communicator) -> tuple[str, float]:
        plan = read_plan("solver.prototxt", ["base_lr: 0", f"parallel_param {{ {exchange} }}"])
        with Solver(plan, world=comm) as solver:
            with pytest.raises(DivergedError) as error:
                solver.step(2)
            return str(error.value), next(solver.net.parameters()).item()

    for message, weight in run_ranks(ranks, run):
        assert message.startswith('iteration 1: the loss is inf: blob "loss" of layer "loss" (EuclideanLoss) is not')
        assert "the rate is 0 now" in message
        assert weight == 1


def test_weights_that_an_update_has_spoilt_are_named_and_never_written(summed: Path) -> None:
    set_up(summed, [STEEP, STEEP], 2)
    plan = read_plan("solver.prototxt", ["base_lr: 1e10 snapshot_prefix: 'a'"])
    with Solver(plan) as solver:
        solver.step(1)
        with pytest.raises(DivergedError, match=r'after 1 iterations a weight of layer "ip" is not finite: no'):
            solver.snapshot()
        with pytest.raises(DivergedError, match=r'iteration 1: the loss is inf: a weight of layer "ip" is not'):
            solver.step(1)
    assert not list(summed.glob("a_iter*"))


@pytest.mark.parametrize("exchange", EXCHANGES)
def test_gradients_that_are_not_finite_are_applied_on_request(summed: Path, exchange: str) -> None:
    set_up(summed, [1.0, OVERFLOWING], 2)
    weights = steps(2, 1, f"on_nan: GO_ON parallel_param {{ {exchange} }}", look=weight_of)
    assert not any(map(math.isfinite, weights))


def weight_of(solver: Solver) -> float:
    solver.runtime.passes.complete_weights()
    return next(solver.net.parameters()).item()


@pytest.mark.filterwarnings("ignore")
def test_data_that_are_not_finite_are_to_blame_themselves(summed: Path) -> None:
    set_up(summed, [1.0, math.nan], 2)
    with pytest.raises(DivergedError, match=r'blob "data" of layer "data" \(HDF5Data\) .* it is the data; mend'):
        steps(1, 1)


def test_on_nan_go_on_trains_on_as_caffe_does(summed: Path) -> None:
    set_up(summed, [STEEP, STEEP], 2)
    (loss,) = steps(1, 3, "base_lr: 1e10 on_nan: GO_ON", look=lambda solver: solver.loss)
    assert math.isnan(loss)
