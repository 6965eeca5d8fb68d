"""Nets whose batches stay whole, trained by workers: each gets whole batches of the data set, in its order."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from bpt.base.errors import LayerError
from bpt.config.plan.resolve import read_plan
from bpt.parallel.outer.outer_instructions import Order
from bpt.system.comm.base import Communicator
from bpt.system.comm.serial import SerialCommunicator
from bpt.system.device import CPU
from bpt.train.outer import train, worker
from bpt.train.outer.report import read_csv
from bpt.train.solver.solver import Solver
from tests.support.doubles.thread_ranks import run_ranks
from tests.support.marks import slow
from tests.support.spread_runs import read_model
from tests.support.whole_batches import BATCHES, NET, ROWS, loss_by_hand, put
from tests.train.outer.outer_runs import one_thread

pytestmark = pytest.mark.usefixtures("sequences")


UNWEIGHED = "weigh_by_accuracy: false"
STAGES = "num_stages: 2 pipeline_param { micro_batches: 1 }"
MASTER = "num_shards: 3 fc_param { scheme: MASTER_SLAVE }"


@pytest.fixture(autouse=True)
def without_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bpt.train.outer.serving.draw", lambda record, folder: [])  # takes seconds


def outer(ranks: int, parallel: str, *overrides: str) -> None:
    def run(world: Communicator) -> None:
        with one_thread():
            train(read_plan("solver.prototxt", [f"parallel_param {{ {parallel} }}", *overrides]), world, CPU)

    run_ranks(ranks, run) if ranks > 1 else run(SerialCommunicator())


@pytest.mark.parametrize("begin", [slow(0), 1])
@pytest.mark.parametrize(
    ("ranks", "parallel", "tolerance"),
    [
        (1, "exchange: SGWU", 0.0),
        (2, f"exchange: SGWU agwu_param {{ {UNWEIGHED} }}", 0.0),
        (2, "exchange: SGWU agwu_param { accuracy: AFTER_EPOCH }", 0.0),
        (2, f"exchange: AGWU agwu_param {{ {UNWEIGHED} }}", 0.0),
        (2, "exchange: ASGD", 0.0),
        (3, f"exchange: SGWU {STAGES}", 1e-6),
        (4, f"exchange: ASGD {MASTER}", 1e-6),
    ],
)
def test_one_worker_trains_as_one_process(ranks: int, parallel: str, tolerance: float, begin: int) -> None:
    """Eight batches of five, over the end of the data; states go on from batch to batch, if no marker ends them."""
    put(begin)
    with one_thread(), Solver(read_plan("solver.prototxt")) as solver:
        solver.solve()
    expected = read_model(8)
    outer(ranks, parallel)
    found = read_model(8)
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=0, atol=tolerance, err_msg=name)


def test_sgwu_is_the_mean_of_workers_that_train_their_own_batches() -> None:
    """One round by hand: worker 0 has the first three batches of five, worker 1 the other two, in their order."""
    put(begin=1)
    plain = "momentum: 0", f"max_iter: {BATCHES}"
    with one_thread(), Solver(read_plan("solver.prototxt", plain)) as solver:
        values = solver.net.values_by_name()
        first = {f"{name}/{blob}": value.detach().double() for (name, blob), value in values.items()}
    trained: list[dict[str, NDArray[np.float64]]] = []
    for own in ((0, 1, 2), (3, 4)):
        weights, state = first, [torch.zeros(2, 3, dtype=torch.float64)] * 2
        for batch in own:
            leaves = {name: value.clone().requires_grad_() for name, value in weights.items()}
            loss, state = loss_by_hand(leaves, batch, state)
            loss.backward()
            weights = {name: leaf.detach() - 0.2 * leaf.grad for name, leaf in leaves.items() if leaf.grad is not None}
        trained.append({name: value.flatten().numpy() for name, value in weights.items()})
    # Batches weigh, since those of a worker are more than those of the other.
    outer(3, f"exchange: SGWU agwu_param {{ {UNWEIGHED} weigh_by_samples: true }}", *plain)
    found = read_model(BATCHES)
    assert found.keys() == first.keys()
    for name, value in found.items():
        np.testing.assert_allclose(value, (3 * trained[0][name] + 2 * trained[1][name]) / 5, atol=1e-6, err_msg=name)


@pytest.mark.parametrize("exchange", ["SGWU", "AGWU", "ASGD"])
@pytest.mark.parametrize("balance", [slow("UNIFORM"), "IDPA balance_param { num_batches: 3 }"])
def test_workers_get_whole_batches(exchange: str, balance: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[int, ...]] = []

    class Watched(worker.Worker):
        def _allocate(self, order: Order) -> None:
            seen.extend(run for run in order.runs)
            super()._allocate(order)

    monkeypatch.setattr("bpt.train.outer.outer_training.Worker", Watched)
    # Small steps: ranks that run by chance in any order stay near one curve.
    outer(4, f"exchange: {exchange} balance: {balance}", "max_iter: 60 base_lr: 0.02 momentum: 0.5")
    assert all(start % ROWS == stop % ROWS == 0 for start, stop in seen)
    assert sum(stop - start for start, stop in seen) == BATCHES * ROWS
    record = read_csv("small_run")
    assert len(record.nodes) == 3 and all(row.samples % ROWS == 0 for row in record.updates)
    losses = [row.loss for row in record.tests]
    assert losses[-1] < losses[0]


def test_more_workers_than_batches() -> None:
    outer(7, "exchange: AGWU", "max_iter: 5")
    counts = [node.samples_allocated for node in read_csv("small_run").nodes]
    assert counts == [ROWS] * BATCHES + [0]


def test_replicas_of_a_worker_would_divide_its_batch() -> None:
    message = (
        r'"steps": .*, so its batch cannot be divided over ranks; leave out agwu_param { ranks }: then each worker'
    )
    with pytest.raises(LayerError, match=message):
        outer(3, "exchange: AGWU agwu_param { ranks: 2 }")


def test_data_that_are_no_whole_batches() -> None:
    Path("net.prototxt").write_text(NET.replace(f"batch_size: {ROWS}", f"batch_size: {2 * ROWS}", 1))
    with pytest.raises(LayerError, match=r"whole batches of 12, but the data set has 30 samples, which are 2.5 of"):
        outer(3, "exchange: AGWU")
