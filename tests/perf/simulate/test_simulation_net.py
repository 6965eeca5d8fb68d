"""What is read off a training net: N, batch, work, weights, records."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from bpt.base.errors import LayerError, PrototxtError, UserError
from bpt.config.plan.run_plan import RunPlan
from bpt.perf.simulate.simulation_net import NetWorkload, workload_of
from tests.support.paths import GOLDEN
from tests.support.small_solver import small_solver

DATA = GOLDEN / "lmdb" / "digits_train_lmdb"
# 8 samples of 3x6x6. Convolution: 4x4x4 outputs of 27 multiply-adds and a bias; inner product: 64 to 3.
PARAMETERS = (27 + 1) * 4 + (64 + 1) * 3
DIGITS = """
name: "digits"
layer { name: "data" type: "Data" top: "x" top: "y" data_param { source: "SOURCE" batch_size: 20 backend: LMDB } }
layer { name: "ip" type: "InnerProduct" bottom: "x" top: "ip" inner_product_param { num_output: 3 } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "y" top: "loss" }
"""


def digits(folder: Path, *overrides: str, source: Path = DATA) -> RunPlan:
    return small_solver(folder, *overrides, net=DIGITS.replace("SOURCE", str(source)))


def test_a_net_by_hand(tmp_path: Path) -> None:
    """An inner product of 784 to 3 and its loss; a pass trains 20 samples, an iteration two passes."""
    facts = workload_of(digits(tmp_path, "iter_size: 2"))
    assert facts == NetWorkload("digits", 200, 40, facts.flops, 785 * 3, 4 * 785 * 3, 0)
    assert facts.weights == 4 * 785 * 3
    multiply_adds = 2 * 784 * 3 * 3  # forward, and twice as many backward
    assert multiply_adds < facts.flops < 1.02 * multiply_adds


def test_samples_are_those_of_the_data_set_unless_told(tmp_path: Path) -> None:
    test = GOLDEN / "lmdb" / "digits_test_lmdb"
    assert workload_of(digits(tmp_path)).samples == 200
    assert workload_of(digits(tmp_path, source=test)).samples == 100
    assert workload_of(digits(tmp_path), samples=7).samples == 7


def test_batches_that_must_stay_whole(tmp_path: Path) -> None:
    turned = 'layer { name: "turned" type: "Permute" bottom: "ip" top: "t" permute_param { order: 1 } }'
    net = DIGITS.replace("SOURCE", str(DATA)) + turned
    assert workload_of(small_solver(tmp_path, net=net)).grain == 20
    assert workload_of(small_solver(tmp_path, net=net), 60, (1, 28, 28)).grain == 20
    with pytest.raises(
        LayerError, match=r'"turned": it moves axis 0, .* whole batches of 20, but the data set has 65 '
    ):
        workload_of(small_solver(tmp_path, net=net), samples=65)


def test_records_count_if_the_server_sends_them(tmp_path: Path) -> None:
    """28 x 28 bytes, a few around them for their shape and label, and a key of 8."""
    record = workload_of(digits(tmp_path, "parallel_param { ship_data: true }")).record
    assert 784 + 8 < record < 784 + 40


def test_a_shape_stands_for_the_data(tmp_path: Path) -> None:
    source = digits(tmp_path, source=tmp_path / "nowhere")
    with pytest.raises(LayerError, match="no such folder"):
        workload_of(source, samples=100)
    facts = workload_of(source, samples=100, shape=(1, 28, 28))
    with_data = workload_of(digits(tmp_path), samples=100)
    assert facts == with_data
    assert workload_of(source.with_parallel(ship_data=True), 100, (1, 28, 28)) == replace(facts, record=784)


def test_a_shape_stands_for_image_files_and_windows(tmp_path: Path) -> None:
    """Their batch size was not found: a batch of none."""
    with_data = workload_of(digits(tmp_path), samples=100)
    old = 'type: "Data" top: "x" top: "y" data_param { source: "SOURCE" batch_size: 20 backend: LMDB }'
    assert old in DIGITS
    for kind, field in (("ImageData", "image_data_param"), ("WindowData", "window_data_param")):
        new = f'type: "{kind}" top: "x" top: "y" {field} {{ source: "nowhere" batch_size: 20 }}'
        source = small_solver(tmp_path, net=DIGITS.replace(old, new))
        assert workload_of(source, samples=100, shape=(1, 28, 28)) == with_data
        with pytest.raises(UserError, match='layer "data" reads images'):
            workload_of(source, samples=100, shape=(28, 28))


def test_nothing_says_how_many_samples_there_are(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="give the number of samples: --samples N"):
        workload_of(small_solver(tmp_path))
    facts = workload_of(small_solver(tmp_path), samples=100)
    assert (facts.samples, facts.batch, facts.parameters, facts.name) == (100, 8, PARAMETERS, "small")


def test_a_net_without_batches(tmp_path: Path) -> None:
    net = 'layer { name: "x" type: "DummyData" top: "x" dummy_data_param { shape { } } }'
    with pytest.raises(PrototxtError, match=r"solver\.prototxt:1:1: the training net has no layer that makes batches"):
        workload_of(small_solver(tmp_path, net=net), samples=10)


def test_what_cannot_be_sent_is_refused(tmp_path: Path) -> None:
    folder = GOLDEN / "data"
    param = f'hdf5_data_param {{ source: "{folder}/h5list.txt" batch_size: 2 }}'
    net = f'layer {{ name: "data" type: "HDF5Data" top: "data" {param} }}'
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        with pytest.raises(LayerError, match="ship_data"):
            workload_of(small_solver(tmp_path, "parallel_param { ship_data: true }", net=net))
