"""Whole runs of the outer layer: against one process, against arithmetic done here, and repeated from a log."""

from __future__ import annotations

import json
import logging
import threading
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from bpt.base.errors import FileError, LayerError, RunError, UserError
from bpt.config.proto import bpt_pb2 as pb
from bpt.parallel.outer.outer_instructions import AverageSubmitted, SendOrder
from bpt.train.outer import worker
from bpt.train.outer.replay_log import read_log
from bpt.train.outer.report import read_csv
from tests.support.doubles.thread_ranks import Killed
from tests.support.paths import GOLDEN
from tests.support.spread_runs import ROWS
from tests.train.outer.outer_runs import UNWEIGHED, alone, assert_equal, outer, weights

pytestmark = pytest.mark.usefixtures("folder")


@pytest.mark.parametrize("exchange", ["AGWU", "SGWU", "ASGD"])
@pytest.mark.parametrize("ranks", [1, 2])
def test_one_worker_trains_as_one_process_to_the_last_bit(exchange: str, ranks: int) -> None:
    """4.9 passes with momentum, learning rates in steps, dropout, and batches that reach over the ends of passes."""
    alone()
    expected = weights()
    outer(ranks, f"exchange: {exchange} agwu_param {{ {UNWEIGHED} }}")
    assert_equal(weights(), expected)


def test_one_worker_with_batches_of_samples_handed_out_trains_all_of_them() -> None:
    outcome = outer(2, "exchange: AGWU balance: IDPA balance_param { num_batches: 3 }")
    assert outcome.iterations == 9
    record = read_csv("small_run")
    assert [(row.batch, row.samples, row.total) for row in record.allocation] == [(1, 7, 7), (2, 7, 14), (3, 8, 22)]
    # K' = 3 + floor(4 - 2) passes and the fraction of 4.909...
    assert [row.passes for row in record.updates] == pytest.approx([1, 2, 3, 4, 5, 5 + 10 / 11], abs=1e-6)


def test_sgwu_is_the_mean_of_what_the_workers_have_trained(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two workers, one round: the global weights are the plain average of what they submitted."""
    submitted: dict[int, NDArray[np.float32]] = {}

    class Watched(worker.Worker):
        def trained(self) -> NDArray[np.float32]:
            weights = super().trained()
            submitted[self._number] = weights.copy()
            return weights

    monkeypatch.setattr("bpt.train.outer.outer_training.Worker", Watched)
    # 22 samples are 1 pass: 11 for each of the workers, in 1 iteration of 2 * 6.
    outer(3, f"exchange: SGWU agwu_param {{ {UNWEIGHED} }}", "max_iter: 1")
    mean = (submitted[0].astype(np.float64) + submitted[1]) / 2
    trained = weights(1)
    flat = np.concatenate(
        [trained[n][0] for n in ("conv",)] + [b for n in ("fc", "ip") for b in trained[n]] + trained["bn"]
    )
    assert not np.array_equal(submitted[0], submitted[1])
    np.testing.assert_allclose(flat, mean, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("exchange", ["AGWU", "ASGD", "SGWU"])
def test_a_replay_ends_bit_for_bit_equal(exchange: str) -> None:
    parallel = f"exchange: {exchange} balance: IDPA balance_param {{ num_batches: 2 }}"
    outer(4, parallel, "max_iter: 20")
    expected, log = weights(20), read_log("small_run/replay.jsonl").instructions
    Path("small_run").rename("first_run")
    outer(4, parallel, "max_iter: 20 snapshot_prefix: 'again'", replay="first_run/replay.jsonl")
    assert_equal(weights(20, "again"), expected)
    assert sum(isinstance(each, SendOrder) for each in log) > 6


def test_a_replay_of_another_run_is_refused() -> None:
    outer(3, "exchange: AGWU", "max_iter: 2")
    Path("small_run").rename("first_run")
    with pytest.raises(
        UserError,
        match=r"first_run/replay.jsonl: this log is of another run: max_iter \(2, now 3\), workers \(2, now 3\); ",
    ):
        outer(4, "exchange: AGWU", "max_iter: 3", replay="first_run/replay.jsonl")
    with pytest.raises(FileError, match="no_such_log: cannot read the replay log: No such file"):
        outer(3, "exchange: AGWU", "max_iter: 2", replay="no_such_log")


def test_a_dedicated_server_needs_a_second_process(caplog: pytest.LogCaptureFixture) -> None:
    told = "parallel_param: server: DEDICATED has no effect with one process, which serves and computes"
    outer(1, "exchange: AGWU server: DEDICATED", "max_iter: 1")
    assert told in caplog.messages
    caplog.clear()
    outer(1, "exchange: AGWU", "max_iter: 1")
    outer(2, "exchange: AGWU server: DEDICATED", "max_iter: 1")
    assert told not in caplog.messages


def test_a_worker_that_dies_is_replaced_by_the_others(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Worker 1 dies within its second local epoch; its samples go to the other two, and the run goes on to its end."""

    class Mortal(worker.Worker):
        def _iterate(self) -> float:
            if self._number == 1 and self._iterations == 3:
                raise Killed
            return super()._iterate()

    monkeypatch.setattr("bpt.train.outer.outer_training.Worker", Mortal)
    with caplog.at_level(logging.INFO, "bpt"):
        outcome = outer(4, "exchange: AGWU", "max_iter: 30")
    assert outcome.iterations == 30
    log = caplog.text
    assert "Lost: worker 1 (rank 2, host " in log and "its 7 samples go to the other workers" in log
    nodes = read_csv("small_run").nodes
    assert nodes[0].samples_allocated + nodes[2].samples_allocated == ROWS
    assert weights(30)


def test_a_worker_slowed_tenfold_never_stops_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """It begins each of its first iterations only when the other one has done ten more of its own: if that one waited
    for it anywhere, both would wait for ever. What it submits late counts."""
    change = threading.Condition()
    done = {0: 0, 1: 0}

    class Slowed(worker.Worker):
        def _iterate(self) -> float:
            with change:
                if self._number == 1 and done[1] < 3:
                    assert change.wait_for(lambda: done[0] >= 10 * (done[1] + 1), 60), f"the other one waits: {done}"
            loss = super()._iterate()
            with change:
                done[self._number] += 1
                change.notify_all()
            return loss

    monkeypatch.setattr("bpt.train.outer.outer_training.Worker", Slowed)
    outcome = outer(3, "exchange: AGWU", "max_iter: 80")
    assert outcome.iterations == 80
    updates = [row.worker for row in read_csv("small_run").updates]
    # A pass of 11 samples takes two iterations of 6: the other has done 20, and its tenth update may be on its way.
    assert updates.index(1) >= 9 and set(updates) == {0, 1}
    assert weights(80)


def test_what_was_submitted_is_saved_when_all_workers_die(monkeypatch: pytest.MonkeyPatch) -> None:
    class Mortal(worker.Worker):
        def _iterate(self) -> float:
            if self._iterations == 5:
                raise Killed
            return super()._iterate()

    monkeypatch.setattr("bpt.train.outer.outer_training.Worker", Mortal)
    with pytest.raises(RunError, match="the last computing node has left"):
        outer(2, "exchange: AGWU", "max_iter: 30")
    (model,) = Path().glob("small_iter_*.caffemodel")
    (state,) = Path().glob("small_iter_*.solverstate")
    assert 0 < pb.SolverState.FromString(state.read_bytes()).iter < 30 and model.stem == state.stem


@pytest.mark.parametrize("exchange", ["SGWU", "AGWU"])
def test_colocated_server_computes_too(exchange: str) -> None:
    outer(2, f"exchange: {exchange} server: COLOCATED", "max_iter: 4")
    nodes = read_csv("small_run").nodes
    assert [node.samples_allocated for node in nodes] == [11, 11]
    assert nodes[0].bytes_sent == 0 < nodes[1].bytes_sent  # one of them shares the server's memory


def test_bytes_are_those_of_equation_11() -> None:
    """2 c_w m K: with K = 3 passes, 2 workers, and the 1,166 weights of the small net."""
    outer(3, "exchange: AGWU", "max_iter: 11 iter_size: 1")
    record = read_csv("small_run")
    c_w = 4 * sum(blob.size for blobs in weights(11).values() for blob in blobs)
    assert record.weights == c_w
    assert sum(node.bytes_sent + node.bytes_received for node in record.nodes) == 2 * c_w * 2 * 3


def test_tests_snapshots_and_reports_are_written(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "bpt"):
        outer(3, "exchange: AGWU", "snapshot: 4")
    assert {path.name for path in Path().glob("small_iter_9.*")} == {
        "small_iter_9.caffemodel",
        "small_iter_9.solverstate",
    }
    assert len(list(Path().glob("*.caffemodel"))) == 3
    names = {path.name for path in Path("small_run").iterdir()}
    assert {"replay.jsonl", "updates.csv", "nodes.csv", "tests.csv", "allocation.csv", "summary.csv"} <= names
    tests = read_csv("small_run").tests
    # On a busy machine some tests are left out.
    left_out = [message for message in caplog.messages if "the test before has not begun" in message]
    assert (tests[0].iteration, tests[-1].iteration) == (0, 9) and len(tests) + len(left_out) == 4
    facts = json.loads(Path("small_run/replay.jsonl").read_text().splitlines()[0])
    assert (facts["samples"], facts["workers"], facts["seed"]) == (ROWS, 2, 3)


def test_a_run_goes_on_from_a_snapshot() -> None:
    outer(3, "exchange: AGWU", "max_iter: 5")
    outcome = outer(2, "exchange: SGWU", "max_iter: 9", resume="small_iter_5.solverstate")
    assert outcome.iterations == 9
    # 4 iterations of 12 samples are 2.18 passes over 22. The fourth ends both, so the last submission has nothing new.
    record = read_csv("small_run")
    assert record.nodes[0].passes == pytest.approx(24 / 11, abs=1e-6)
    assert [row.passes for row in record.updates] == [1, 2]


SHIPPED = f"""
layer {{ name: "data" type: "Data" top: "data" top: "label" transform_param {{ scale: 0.004 mirror: true }}
  data_param {{ source: "{GOLDEN}/lmdb/digits_train_lmdb" batch_size: 16 backend: LMDB shuffle: true }} }}
layer {{ name: "ip" type: "InnerProduct" bottom: "data" top: "ip"
  inner_product_param {{ num_output: 10 weight_filler {{ type: "xavier" }} }} }}
layer {{ name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }}
"""


def test_samples_that_the_server_ships_train_as_those_read_from_a_shared_path(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("shipped.prototxt").write_text(SHIPPED)
    text = Path("solver.prototxt").read_text().replace("net.prototxt", "shipped.prototxt")
    text = text.replace("test_iter: 2 test_interval: 4", "")
    Path("shipped_solver.prototxt").write_text(text)
    outer(3, "exchange: SGWU", solver="shipped_solver.prototxt")
    expected = weights()
    outer(3, "exchange: SGWU ship_data: true", solver="shipped_solver.prototxt")
    assert_equal(weights(), expected)


def test_what_cannot_be_shipped_is_refused() -> None:
    with pytest.raises(
        LayerError, match=r'layer "data": .*ship_data sends the records of Data layers, not what HDF5Data reads'
    ):
        outer(3, "exchange: SGWU ship_data: true")


def test_equal_shares_give_plain_averages() -> None:
    """Eq. 7 with equal Q, as the log tells."""
    outer(3, f"exchange: SGWU agwu_param {{ {UNWEIGHED} }}")
    averages = [each for each in read_log("small_run/replay.jsonl").instructions if isinstance(each, AverageSubmitted)]
    assert len(averages) == 5 and all(each.factors == (0.5, 0.5) for each in averages)


def test_staleness_is_bounded() -> None:
    outer(4, "exchange: AGWU agwu_param { max_staleness: 2 }", "max_iter: 40")
    assert max(row.staleness for row in read_csv("small_run").updates) <= 2
