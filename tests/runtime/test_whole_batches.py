"""Nets whose batches stay whole: each rank trains batches of its own, and the sum is that of one process's passes."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pytest

from bpt.check.comparison import Compared, compare
from bpt.comm.base import Communicator
from bpt.comm.serial import SerialCommunicator
from bpt.device import CPU
from bpt.errors import LayerError
from bpt.plan.dividing import is_dividable
from bpt.plan.resolve import read_plan
from bpt.solver.solver import Solver
from bpt.speeds.profiling import profile
from tests.doubles.thread_ranks import run_ranks
from tests.layers.test_hdf5_data import write
from tests.solver.spread_runs import Line, Saved, assert_same_lines, remove_snapshots, train

STEPS, STREAMS, BATCHES = 3, 2, 5
REPLICA = "parallel_param { batch_scope: REPLICA }"
ROWS = STEPS * STREAMS
NET = f"""
name: "small"
layer {{ name: "data" type: "HDF5Data" top: "x" top: "cont" top: "y"
  hdf5_data_param {{ source: "list.txt" batch_size: {ROWS} }} }}
layer {{ name: "fc" type: "InnerProduct" bottom: "x" top: "fc"
  inner_product_param {{ num_output: 4 weight_filler {{ type: "xavier" }} }} }}
layer {{ name: "drop" type: "Dropout" bottom: "fc" top: "fc" dropout_param {{ dropout_ratio: 0 }} }}
layer {{ name: "steps" type: "Reshape" bottom: "fc" top: "steps" reshape_param {{ shape {{ dim: {STEPS} dim: -1 dim: 4 }} }} }}
layer {{ name: "marks" type: "Reshape" bottom: "cont" top: "marks" reshape_param {{ shape {{ dim: {STEPS} dim: -1 }} }} }}
layer {{ name: "lstm" type: "LSTM" bottom: "steps" bottom: "marks" top: "lstm"
  recurrent_param {{ num_output: 3 weight_filler {{ type: "xavier" }} }} }}
layer {{ name: "labels" type: "Reshape" bottom: "y" top: "labels" reshape_param {{ shape {{ dim: {STEPS} dim: -1 }} }} }}
layer {{ name: "ip" type: "InnerProduct" bottom: "lstm" top: "ip"
  inner_product_param {{ num_output: 3 axis: 2 weight_filler {{ type: "xavier" }} }} }}
layer {{ name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "labels" top: "loss" softmax_param {{ axis: 2 }} }}
layer {{ name: "accuracy" type: "Accuracy" bottom: "ip" bottom: "labels" top: "accuracy" include {{ phase: TEST }}
  accuracy_param {{ axis: 2 }} }}
"""  # noqa: E501
SOLVER = """
net: "net.prototxt" test_iter: 5 test_interval: 4 base_lr: 0.2 momentum: 0.9 lr_policy: "fixed" max_iter: 8
snapshot_prefix: "small" random_seed: 3 engine: CONTIGUOUS display: 0
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Batches (time, stream) row by row, of which each is one of sequences that begin with it."""
    monkeypatch.chdir(tmp_path)
    put(begin=0)
    (tmp_path / "list.txt").write_text("0.h5\n")
    (tmp_path / "net.prototxt").write_text(NET)
    (tmp_path / "solver.prototxt").write_text(SOLVER)
    return tmp_path


def put(begin: int) -> None:
    """Write the data set; ``begin`` marks the first step of each batch."""
    generator = np.random.default_rng(1)
    cont = np.ones((BATCHES, STEPS, STREAMS))
    cont[:, 0] = begin
    rows = BATCHES * ROWS
    write(
        Path.cwd(),
        {"x": generator.standard_normal((rows, 5)), "cont": cont.ravel(), "y": generator.integers(0, 3, rows)},
    )


def scores_of(lines: list[Line]) -> list[Line]:
    return [line for line in lines if "Test net output" in line.words]


@pytest.mark.parametrize(("ranks", "more"), [(2, ""), (3, ""), (2, "parallel_param { exchange: CGDP }")])
def test_ranks_train_as_many_passes_of_one_process(ranks: int, more: str) -> None:
    """Over three and five epochs: shares are not turned, or else sequences would be cut. Tests are alike."""
    one = train(1, f"iter_size: {ranks}")
    expected = Saved.read(8)
    remove_snapshots()
    many = train(ranks, REPLICA, more)
    found = Saved.read(8)
    assert found.weights.keys() == expected.weights.keys()
    for name, values in expected.weights.items():
        assert np.abs(values).max() > 0
        np.testing.assert_allclose(found.weights[name], values, rtol=0, atol=1e-5, err_msg=name)
    assert len(scores_of(one.lines)) == 6
    assert_same_lines(scores_of(many.lines), scores_of(one.lines))


def compared(*overrides: str) -> list[Compared]:
    def run(comm: Communicator) -> list[Compared]:
        return compare(read_plan("solver.prototxt", (REPLICA, *overrides)), CPU, comm, 4)

    return run_ranks(2, run)[0]


def test_one_process_is_compared_with_ranks_that_keep_their_states(caplog: pytest.LogCaptureFixture) -> None:
    """Sequences go on from batch to batch, on each rank its own."""
    put(begin=1)
    with caplog.at_level(logging.INFO, "bpt"):
        found = compared()
    assert "Now the same on one process" in caplog.text and "micro-batch" not in caplog.text
    assert [line.name for line in found][:2] == ["fc/0", "fc/1"] and len(found) == 7
    assert all(line.gradient.size > 0 and line.weight.size > 0 for line in found)
    assert max(max(line.gradient.relative, line.weight.relative) for line in found) < 1e-9


def test_what_one_process_cannot_do_one_batch_behind_the_other(folder: Path) -> None:
    counted = 'loss_param { ignore_label: 2 } softmax_param { axis: 2 } }\nlayer { name: "accuracy"'
    text = NET.replace('softmax_param { axis: 2 } }\nlayer { name: "accuracy"', counted)
    (folder / "net.prototxt").write_text(text)
    with pytest.raises(LayerError, match=r'"loss": loss_param { ignore_label } .* only a copy of the net'):
        compared()
    (folder / "net.prototxt").write_text(
        NET.replace(
            'layer { name: "drop"',
            'layer { name: "bn" type: "BatchNorm" bottom: "fc" top: "fc" }\nlayer { name: "drop"',
        )
    )
    with pytest.raises(LayerError, match=r'"bn": it normalises by the batches of all ranks \(sync\); batches'):
        compared("parallel_param { sync_batch_norm: true }")
    assert all(line.within(1e-9) for line in compared())  # each by itself, as one process does it


def test_such_a_net_is_not_measured() -> None:
    """By batches of one size only."""
    with pytest.raises(LayerError, match=r'"steps": .* so batches have one size, .* no profile is needed$'):
        profile(read_plan("solver.prototxt"), CPU, SerialCommunicator(), "p.json")


def test_a_net_without_time_is_divided(folder: Path) -> None:
    with Solver(read_plan("solver.prototxt")) as solver:
        assert not is_dividable(solver.net.graph)
    cut = (
        NET[: NET.index('layer { name: "steps"')]
        + 'layer { name: "s" type: "Silence" bottom: "fc" bottom: "cont" bottom: "y" }'
    )
    (folder / "net.prototxt").write_text(cut)
    with Solver(read_plan("solver.prototxt")) as solver:
        assert is_dividable(solver.net.graph)
