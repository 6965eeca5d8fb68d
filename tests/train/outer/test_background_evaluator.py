"""The evaluator tests and saves the weights it is given, while others go on. Scores are worked by hand."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from bpt.base.errors import WriteError
from bpt.config.plan.resolve import read_plan
from bpt.config.proto import bpt_pb2 as pb
from bpt.train.outer.background_evaluator import BackgroundEvaluator, Moment
from bpt.train.outer.report import TestRow as Row
from bpt.train.solver.solver import Solver
from tests.support.hdf5_files import write

NET = """
name: "small"
layer { name: "data" type: "HDF5Data" top: "x" top: "y" hdf5_data_param { source: "list.txt" batch_size: 2 } }
layer { name: "ip" type: "InnerProduct" bottom: "x" top: "p"
        inner_product_param { num_output: 2 bias_term: false weight_filler { type: "constant" value: 7 } } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "p" bottom: "y" top: "loss" }
layer { name: "accuracy" type: "Accuracy" bottom: "p" bottom: "y" top: "accuracy" include { phase: TEST } }
"""
SOLVER = """
net: "net.prototxt" test_iter: 2 test_interval: 5 base_lr: 0.1 lr_policy: "fixed" max_iter: 9
snapshot_prefix: "saved/small" engine: CONTIGUOUS random_seed: 1
"""
# Sample i is a unit vector of its label, but for the last one, whose label is 0 though it looks like a 1.
IMAGES, LABELS = np.eye(2)[[0, 1, 0, 1]], np.array([0, 1, 0, 0])
RIGHT = np.array([4, 0, 0, 4], np.float32)  # three of four are right
WRONG = np.array([0, 4, 4, 0], np.float32)
SURE, UNSURE = math.log1p(math.exp(-4)), math.log1p(math.exp(4))  # what a right and a wrong answer cost


@pytest.fixture
def solver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Solver]:
    monkeypatch.chdir(tmp_path)
    write(tmp_path, {"x": IMAGES, "y": LABELS})
    (tmp_path / "list.txt").write_text("0.h5\n")
    (tmp_path / "net.prototxt").write_text(NET)
    (tmp_path / "solver.prototxt").write_text(SOLVER)
    (tmp_path / "saved").mkdir()
    with Solver(read_plan("solver.prototxt")) as solver:
        yield solver


def moment(weights: np.ndarray, iteration: int = 5) -> Moment:
    return Moment(iteration, iteration / 2, 3 * iteration, weights, iteration * 0.25)


@pytest.mark.parametrize("apart", [True, False])
def test_it_tests_the_weights_of_the_moment(solver: Solver, apart: bool) -> None:
    """... one after the other, though several may wait. AUC: one of the three 0s looks like the 1: 2.5 of 3 pairs."""
    evaluator = BackgroundEvaluator(solver, threads=1, apart=apart)
    evaluator.test(moment(RIGHT, 5))
    evaluator.test(moment(WRONG, 7), always=True)
    evaluator.finish()
    assert [(row.seconds, row.iteration, row.epoch, row.version, row.net) for row in evaluator.tests] == [
        (1.25, 5, 2.5, 15, 0),
        (1.75, 7, 3.5, 21, 0),
    ]
    right, wrong = evaluator.tests
    assert isinstance(right, Row)
    assert (right.accuracy, wrong.accuracy) == (0.75, 0.25)
    assert right.loss == pytest.approx((3 * SURE + UNSURE) / 4, rel=1e-5)
    assert wrong.loss == pytest.approx((SURE + 3 * UNSURE) / 4, rel=1e-5)
    assert (right.auc, wrong.auc) == (pytest.approx(2.5 / 3), pytest.approx(0.5 / 3))


def test_it_makes_way_for_messages(solver: Solver) -> None:
    """It stands still between layers while it is asked to, and ends all the same: nobody has to let it go on."""
    evaluator = BackgroundEvaluator(solver, threads=1)
    evaluator.yield_cores(True)
    net = solver.runtime.nets.tests[0].operator.net
    waiting, passed = threading.Event(), threading.Event()
    net.layers[0].register_forward_pre_hook(lambda *_: waiting.set(), prepend=True)
    net.layers[0].register_forward_hook(lambda *_: passed.set())
    began = time.monotonic()
    evaluator.test(moment(RIGHT))
    assert waiting.wait(60)
    assert not passed.is_set() or time.monotonic() - began > 0.5  # a busy machine may be late to look
    evaluator.finish()
    assert passed.is_set()
    assert [row.accuracy for row in evaluator.tests] == [0.75]


def test_weights_do_not_pile_up(solver: Solver, monkeypatch: pytest.MonkeyPatch) -> None:
    """A test that is due while the one before waits is left out."""
    begin = threading.Event()
    monkeypatch.setattr(solver, "test", lambda index: begin.wait(120) and None)
    evaluator = BackgroundEvaluator(solver, threads=1)
    evaluator.test(moment(RIGHT, 1))
    for iteration in range(2, 9):  # the first of them waits, unless the thread has not begun with the one before
        evaluator.test(moment(WRONG, iteration))
    assert evaluator._queue.qsize() <= 2
    begin.set()
    evaluator.finish()


def test_without_a_thread_it_is_done_when_the_call_returns(solver: Solver) -> None:
    here = BackgroundEvaluator(solver, threads=1, apart=False)
    here.test(moment(RIGHT))
    assert len(here.tests) == 1
    here.finish()


@pytest.mark.parametrize("apart", [True, False])
def test_it_saves_the_weights_of_the_moment(solver: Solver, apart: bool) -> None:
    evaluator = BackgroundEvaluator(solver, threads=1, apart=apart)
    for iteration, weights in ((5, RIGHT), (7, WRONG)):
        evaluator.snapshot(moment(weights, iteration))
    evaluator.finish()
    for iteration, weights in ((5, RIGHT), (7, WRONG)):
        net = pb.NetParameter.FromString(Path(f"saved/small_iter_{iteration}.caffemodel").read_bytes())
        (blob,) = (layer.blobs[0] for layer in net.layer if layer.blobs)
        assert list(blob.data) == weights.tolist()
        assert Path(f"saved/small_iter_{iteration}.solverstate").exists()
    assert evaluator.tests == []


def test_weights_are_only_read(solver: Solver) -> None:
    """They are a version that workers train from."""
    weights = RIGHT.copy()
    evaluator = BackgroundEvaluator(solver, threads=1)
    evaluator.test(moment(weights))
    evaluator.snapshot(moment(weights))
    evaluator.finish()
    np.testing.assert_array_equal(weights, RIGHT)


def test_what_goes_wrong_is_told(solver: Solver) -> None:
    """By ``check``, which the server calls, and by ``finish``; and nothing more is done."""
    evaluator = BackgroundEvaluator(solver, threads=1)
    evaluator.check()
    Path("saved").rmdir()
    Path("saved").write_text("")
    evaluator.snapshot(moment(RIGHT))
    evaluator.test(moment(RIGHT))
    with pytest.raises(WriteError, match="saved/small_iter_5"):
        evaluator.finish()
    with pytest.raises(WriteError):
        evaluator.check()
    assert evaluator.tests == []


def test_without_a_thread_the_caller_sees_it_at_once(solver: Solver) -> None:
    evaluator = BackgroundEvaluator(solver, threads=1, apart=False)
    Path("saved").rmdir()
    Path("saved").write_text("")
    with pytest.raises(WriteError):
        evaluator.snapshot(moment(RIGHT))
