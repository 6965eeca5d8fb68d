"""``scripts/bench resattnet``: what it starts, and what it makes of the answers."""

from __future__ import annotations

import argparse
import os
from dataclasses import replace
from pathlib import Path

import pytest

from bpt.config.plan.resolve import read_plan
from bpt.config.proto.sources import read_solver
from bpt.system.comm.serial import SerialCommunicator
from scripts.benches import resattnet
from scripts.benches.resattnet import Seen, Way
from tests.support.bench_arguments import parse
from tests.support.doubles.thread_ranks import run_ranks
from tests.support.mpirun import needs_mpi
from tests.support.paths import ROOT

SEEN = Seen("net", 160, 6, 160 / 6, 0.4, 120.0, [0.5, 0.9, 0.96], 0.1)

NET = """
name: "points"
layer { name: "data" type: "HDF5Data" top: "data" top: "label" hdf5_data_param { source: "LIST" batch_size: 6 } }
layer { name: "fc" type: "InnerProduct" bottom: "data" top: "fc"
        inner_product_param { num_output: 2 weight_filler { type: "xavier" } } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "fc" bottom: "label" top: "loss" }
layer { name: "accuracy" type: "Accuracy" bottom: "fc" bottom: "label" top: "accuracy" include { phase: TEST } }
"""
SOLVER = """net: "NET" base_lr: 0.5 lr_policy: "fixed" max_iter: 12 test_iter: 5 test_interval: 3 snapshot: 1
            snapshot_prefix: "PREFIX" random_seed: 1 display: 1"""


@pytest.fixture
def solver(tmp_path: Path) -> Path:
    """Of a net that learns which of two numbers is larger: 30 samples, 6 at a time."""
    h5py = pytest.importorskip("h5py")
    np = pytest.importorskip("numpy")
    data = np.random.default_rng(0).standard_normal((30, 2)).astype(np.float32)
    with h5py.File(tmp_path / "points.h5", "w") as file:
        file["data"], file["label"] = data, (data[:, 0] > data[:, 1]).astype(np.float32)
    (tmp_path / "list").write_text(f"{tmp_path / 'points.h5'}\n")
    (tmp_path / "net").write_text(NET.replace("LIST", str(tmp_path / "list")))
    path = tmp_path / "solver"
    path.write_text(SOLVER.replace("NET", str(tmp_path / "net")).replace("PREFIX", str(tmp_path / "snapshot")))
    return path


def test_one_to_four_ranks_and_a_hybrid_are_the_default() -> None:
    arguments = parse(resattnet)
    resattnet.settle(arguments)
    assert (arguments.epochs, arguments.accuracy) == (0, 0.95)
    ways = [Way.read(text) for text in arguments.ways.split(",")]
    assert [(way.stages, way.replicas, way.ranks) for way in ways] == [
        (1, 1, 1), (1, 2, 2), (1, 3, 3), (1, 4, 4), (2, 2, 4), (2, 1, 2), (2, 2, 4),
    ]  # fmt: skip
    assert [way.published for way in ways] == [False] * 5 + [True] * 2
    assert (ROOT / arguments.solver).exists() and (ROOT / arguments.hybrid_solver).exists()


def test_quick_is_small_and_keeps_what_was_asked_for() -> None:
    arguments, own = parse(resattnet, "--quick"), parse(resattnet, "--quick", "--ways", "1,hybrid2x2", "--epochs", "2")
    for each in (arguments, own):
        resattnet.settle(each)
    assert (arguments.ways, arguments.epochs, arguments.accuracy) == ("1,2,hybrid2x1,hybrid2x2", 6, 0.75)
    assert (own.ways, own.epochs, own.accuracy) == ("1,hybrid2x2", 2, 0.75)


@pytest.mark.parametrize("text", ["2x2x2", "0", "2x0", "hybrid2"])
def test_ways_that_are_none(text: str) -> None:
    with pytest.raises(SystemExit, match="neither a number of ranks"):
        Way.read(text)


def test_a_way_is_a_parallel_param(solver: Path) -> None:
    param = read_solver(solver, [Way(2, 3).fields("RING", "REPLICA")]).param.parallel_param
    assert (param.num_stages, param.exchange, param.batch_scope) == (2, param.RING, param.REPLICA)
    assert param.pipeline_param.micro_batches == 1
    param = read_solver(solver, [Way(1, 2).fields("TREE", "GLOBAL")]).param.parallel_param
    assert (param.num_stages, param.exchange, param.HasField("pipeline_param")) == (1, param.TREE, False)


def test_the_published_hybrid(tmp_path: Path) -> None:
    """GABRA and delayed gradients stay as its solver has them; several pipelines update asynchronously."""
    for way, exchange in ((Way(2, 1, True), "ALLREDUCE"), (Way(2, 2, True), "ASGD")):
        fields = way.fields("RING", "GLOBAL")
        param = read_solver(ROOT / resattnet.HYBRID_SOLVER, [fields]).param.parallel_param
        pipeline = param.pipeline_param
        assert (param.num_stages, param.exchange) == (2, param.Exchange.Value(exchange))
        assert (pipeline.allocator, pipeline.schedule) == (pipeline.GABRA, pipeline.DELAYED)
        assert Way.read(str(way)) == way


def test_rows_of_the_table() -> None:
    one, slow = (Way(1, 1), SEEN), (Way(2, 1, True), replace(SEEN, accuracies=[0.5, 0.6], seconds=60.0))
    first, second = (
        dict(zip(resattnet.MEASURED, row, strict=True)) for row in resattnet.measured_rows([one, slow], 0.9)
    )
    assert (first["STm"], first["epochs_to_goal"]) == (1, 2)
    assert (second["way"], second["speedup"], second["E1/Em"], second["STm"]) == ("hybrid2x1", 2, "", "")


def test_ends_of_epochs() -> None:
    assert resattnet.ends_of_epochs(5, 12) == [5, 10, 12]
    assert resattnet.ends_of_epochs(5, 10) == [5, 10]
    assert resattnet.ends_of_epochs(80 / 3, 80) == [27, 53, 80]
    assert resattnet.ends_of_epochs(26.67, 3) == [3]
    assert resattnet.ends_of_epochs(0.4, 3) == [1, 2, 3]  # an epoch is less than a step


@pytest.mark.parametrize(("epochs", "iterations", "tests"), [(0, 0, 3), (2, 0, 2), (0, 7, 2)])
def test_a_run(solver: Path, epochs: float, iterations: int, tests: int) -> None:
    source = read_plan(solver, [resattnet.QUIET])
    found = Seen(**resattnet.train_on(source, SerialCommunicator(), epochs, iterations, "accuracy"))
    assert (found.net, found.samples, found.batch, found.steps) == ("points", 30, 6, 5)
    assert len(found.accuracies) == tests
    assert found.accuracies[-1] > 0.8
    assert found.step > 0
    assert found.seconds > found.step
    assert not list(solver.parent.glob("snapshot*"))


def test_ranks_divide_the_batch_or_have_one_each(solver: Path) -> None:
    for scope, batch, steps in (("GLOBAL", 6, 5), ("REPLICA", 12, 2.5)):
        fields = Way(1, 2).fields("RING", scope), resattnet.QUIET, "engine: CONTIGUOUS"
        source = read_plan(solver, fields)
        ranks = run_ranks(2, lambda comm, source=source: resattnet.train_on(source, comm, 2, 0, "accuracy"))  # type: ignore[misc]
        if scope == "GLOBAL":
            alone = resattnet.train_on(read_plan(solver, fields), SerialCommunicator(), 2, 0, "accuracy")
            assert ranks[0]["accuracies"] == pytest.approx(alone["accuracies"])
            assert ranks[0]["loss"] == pytest.approx(alone["loss"], rel=1e-4)
        assert [(seen["batch"], seen["steps"]) for seen in ranks] == [(batch, steps)] * 2
        assert ranks[0]["accuracies"] == ranks[1]["accuracies"]
        assert ranks[0]["loss"] == pytest.approx(ranks[1]["loss"])


def test_a_row() -> None:
    one = SEEN
    four = Seen("net", 160, 24, 160 / 24, 0.5, 60.0, [0.5, 0.8, 0.9, 0.97], 0.2)
    assert len(resattnet.row(Way(1, 4), four, one, 0.95)) == len(resattnet.HEAD)
    left, right = resattnet.row(Way(2, 2), four, one, 0.95).split("|")
    assert left.split() == ["4", "2x2", "0.970", "1.00", "2.00"]
    assert right.split() == ["500.0", "0.80", "6.67", "4.00", "4", "0.75", "2.40"]
    right = resattnet.row(Way(1, 4), four, one, 0.99).split("|")[1]
    assert right.split() == ["500.0", "0.80", "6.67", "4.00", "-", "-", "-"]


@pytest.mark.slow
@needs_mpi
def test_the_table(solver: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    resattnet.run(
        parse(
            resattnet,
            "--solver",
            str(solver),
            "--ways",
            "2",
            "--epochs",
            "1",
            "--accuracy",
            "0.1",
            "--forecast",
            "0",
            "--output",
            str(solver.parent / "out"),
        )
    )
    first, head, two, *notes = capsys.readouterr().out.splitlines()
    assert f"cores available: {len(os.sched_getaffinity(0))}" in first
    assert head == resattnet.HEAD
    assert two.split()[:2] == ["2", "1x2"]
    assert two.split()[-6:] == ["1.00", "5.00", "1.00", "1", "1.00", "1.00"]
    assert notes


def test_a_run_that_fails_is_told_and_the_others_go_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resattnet, "train", lambda way, *_: None if way.ranks == 2 else SEEN)
    resattnet.run(parse(resattnet, "--ways", "1,2,4096", "--forecast", "0", "--output", str(tmp_path)))
    _, head, one, two, many, *notes = capsys.readouterr().out.splitlines()
    assert two == "2 ranks, 1x2: has failed, see above"
    assert head == resattnet.HEAD
    assert (one.split()[:2], many.split()[:2]) == (["1", "1x1"], ["4096", "1x4096"])
    assert "which more ranks than that share" in notes[-2]


def test_steps_are_timed_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    started = []

    def train(way: Way, _: argparse.Namespace, iterations: int) -> Seen:
        started.append((way.ranks, iterations))
        return replace(SEEN, step=len(started))

    monkeypatch.setattr(resattnet, "train", train)
    runs = [(Way(1, ranks), replace(SEEN, step=9.0)) for ranks in (1, 2)]
    timed = resattnet.timed_in_turn(runs, parse(resattnet, "--turns", "3", "--turn", "7"))
    assert started == [(2, 7), (1, 7), (1, 7), (2, 7)]
    assert timed == [(Way(1, 1), replace(SEEN, step=3.0)), (Way(1, 2), replace(SEEN, step=4.0))]  # of 9, 2, 3; 9, 1, 4
    assert resattnet.timed_in_turn(runs, parse(resattnet)) == runs
