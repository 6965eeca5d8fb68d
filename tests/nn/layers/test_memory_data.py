"""MemoryData: a real Caffe's batches, the order of rows, and what is refused."""

from __future__ import annotations

import json
import logging

import numpy as np
import pytest
import torch

from bpt.base.errors import LayerError, UserError
from bpt.graph.share import whole_batch
from bpt.nn.layers.memory_data import MemoryData
from bpt.nn.net import Net
from bpt.nn.pass_context import PassContext
from tests.nn.layers.refusals import check_refusal
from tests.support.golden_cases import graph_of
from tests.support.paths import GOLDEN

TEXT = (
    'layer { name: "m" type: "MemoryData" top: "data" top: "label"'
    " memory_data_param { batch_size: 2 channels: 1 height: 2 width: 3 } }"
)


def layer_of(text: str = TEXT) -> MemoryData:
    layer = Net(graph_of(text), PassContext()).layers[0]
    assert isinstance(layer, MemoryData)
    return layer


def arrays(rows: int) -> tuple[np.ndarray, np.ndarray]:
    return np.arange(rows * 6, dtype=np.float32).reshape(rows, 1, 2, 3), np.arange(rows, dtype=np.float32)


def labels_of(layer: MemoryData, batches: int) -> list[float]:
    return [label for _ in range(batches) for label in layer()[1].flatten().tolist()]


def test_batches_are_caffes(caplog: pytest.LogCaptureFixture) -> None:
    case = next(case for case in json.loads((GOLDEN / "data/data.json").read_text()) if case["name"] == "memory")
    recorded = np.load(GOLDEN / "data/data.npz")
    with caplog.at_level(logging.WARNING, "bpt"):
        layer = layer_of(case["prototxt"])
    assert caplog.messages == ['layer "m": MemoryData hands arrays out as they are; transform_param does nothing']
    layer.set_arrays(recorded["memory/in/data"], recorded["memory/in/label"].reshape(-1, 1, 1, 1))
    for step in range(case["steps"]):
        for name, top in zip(case["tops"], layer(), strict=True):
            np.testing.assert_array_equal(top.numpy(), recorded[f"memory/s{step}/{name}"], strict=True)


def test_rows_go_round_and_new_arrays_begin_anew() -> None:
    layer = layer_of()
    data, labels = arrays(6)
    layer.set_arrays(data, labels)
    assert labels_of(layer, 4) == [0, 1, 2, 3, 4, 5, 0, 1]
    assert (layer.epoch, layer.position) == (6, 8)
    layer.set_arrays(data[:4], labels[:4])
    assert labels_of(layer, 3) == [0, 1, 2, 3, 0, 1]
    layer.position = 10  # as a resumed run sets it
    assert labels_of(layer, 1) == [2, 3]


def test_arrays_are_not_copied_but_tops_are() -> None:
    layer = layer_of()
    data, labels = arrays(2)
    data.flags.writeable = False
    layer.set_arrays(data, labels)
    top, label = layer()
    assert torch.equal(top, torch.from_numpy(arrays(2)[0]))
    top.zero_()  # as a layer that works in place
    label.zero_()
    labels[1] = 7
    top, label = layer()
    assert torch.equal(top, torch.from_numpy(arrays(2)[0]))
    assert label.flatten().tolist() == [0, 7]


def test_other_numbers_become_float32() -> None:
    layer = layer_of()
    layer.set_arrays(np.ones((2, 1, 2, 3), np.uint8), [3, 4])
    assert [top.dtype for top in layer()] == [torch.float32] * 2


def test_before_there_are_arrays() -> None:
    layer = layer_of()
    assert layer.epoch == 2
    with pytest.raises(LayerError, match=r'layer "m": has no data yet: .* net\.set_input_arrays\(data, labels\)'):
        layer()


@pytest.mark.parametrize(
    ("data", "labels", "message"),
    [
        ((3, 1, 2, 3), (3,), "needs a multiple of its batch_size 2 of rows, given 3"),
        ((0, 1, 2, 3), (0,), "needs a multiple of its batch_size 2 of rows, given 0"),
        ((2, 1, 3, 2), (2,), r"needs data of shape \(N, 1, 2, 3\), given \(2, 1, 3, 2\)"),
        ((6,), (6,), r"needs data of shape \(N, 1, 2, 3\), given \(6,\)"),
        ((), (), r"needs data of shape \(N, 1, 2, 3\), given \(\)"),
        ((2, 1, 2, 3), (2, 1), r"needs labels of shape \(2,\) or \(2, 1, 1, 1\), given \(2, 1\)"),
        ((2, 1, 2, 3), (4,), r"needs labels of shape \(2,\) or \(2, 1, 1, 1\), given \(4,\)"),
    ],
)
def test_arrays_that_do_not_fit(data: tuple[int, ...], labels: tuple[int, ...], message: str) -> None:
    with pytest.raises(UserError, match=f'layer "m" {message}'):
        layer_of().set_arrays(np.zeros(data), np.zeros(labels))


def test_one_process_has_the_whole_batch() -> None:
    layer = layer_of()
    assert layer.mixes_samples(layer.spec, ()) == "its arrays are given to one process, in Python"
    assert layer.share == whole_batch(2)
    layer.share = whole_batch(2)


@pytest.mark.parametrize("field", ["channels", "height", "width"])
def test_sizes_are_needed(field: str) -> None:
    sizes = "batch_size: 2 channels: 1 height: 1 width: 1"
    body = f'type: "MemoryData" top: "data" top: "label" memory_data_param {{ {sizes} }}'
    for word in ("", f"§{field}: 0"):
        broken = body.replace(f" {field}: 1", f" {word}")
        broken = broken if word else broken.replace("memory_data_param", "§memory_data_param")
        check_refusal(broken, f"memory_data_param needs {field} of at least 1")
