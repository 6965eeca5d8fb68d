"""DummyData and MemoryData: what is made up, and what a program gives."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from bpt.base.errors import LayerError, UserError
from bpt.config.proto import bpt_pb2 as pb
from bpt.graph.share import Share, whole_batch
from bpt.nn.layers.memory_data import MemoryData
from bpt.nn.net import Net
from bpt.nn.pass_context import PassContext
from tests.nn.layers.refusals import check_refusal
from tests.support.golden_cases import graph_of
from tests.support.layer_ranks import rows_of, shares_of
from tests.support.paths import GOLDEN

CASES = [case for case in json.loads((GOLDEN / "data" / "data.json").read_text()) if case["type"] == "DummyData"]


def make_net(body: str, context: PassContext | None = None) -> Net:
    return Net(graph_of(f'layer {{ name: "L" type: "DummyData" {body} }}'), context)


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_constants_are_caffes(case: dict[str, Any]) -> None:
    net = Net(graph_of(case["prototxt"]))
    arrays = np.load(GOLDEN / "data" / "data.npz")
    tops = dict(zip(case["tops"], net.layers[0](), strict=True))
    for name, top in tops.items():
        assert np.array_equal(top.numpy(), arrays[f"{case['name']}/s0/{name}"])


SHAPE = "shape { dim: 2 dim: 3 }"


def test_the_default_is_0() -> None:
    (top,) = make_net(f'top: "a" dummy_data_param {{ {SHAPE} }}').layers[0]()
    assert torch.equal(top, torch.zeros(2, 3))


def test_one_entry_serves_all_tops() -> None:
    tops = make_net(f'top: "a" top: "b" dummy_data_param {{ {SHAPE} data_filler {{ value: 5 }} }}').layers[0]()
    assert [top.tolist() for top in tops] == [[[5.0] * 3] * 2] * 2


def test_old_form_of_the_shape() -> None:
    dims = "num: 4 num: 2 channels: 3 height: 1 width: 5 width: 6"
    graph = graph_of(f'layer {{ name: "L" type: "DummyData" top: "a" top: "b" dummy_data_param {{ {dims} }} }}')
    assert [edge.shape for edge in graph.edges] == [(4, 3, 1, 5), (2, 3, 1, 6)]
    assert graph.flops == 0


TWO = f"""top: "a" top: "b" dummy_data_param {{ {SHAPE} data_filler {{ type: "gaussian" }}
                                                       data_filler {{ value: 1 }} }}"""


def test_constants_are_filled_once_and_all_others_anew_in_each_pass() -> None:
    context = PassContext(seed=1)
    net = make_net(TWO, context)
    layer = net.layers[0]
    a, b = layer()
    kept = a.clone()
    net.enter(replace(context, iteration=1))
    other_a, other_b = layer()
    assert other_b is b
    assert torch.equal(a, kept)  # a pass does not write into the blobs of the pass before
    assert not torch.equal(other_a, a)
    net.enter(replace(context, iteration=1, pass_number=1))
    assert not torch.equal(layer()[0], other_a)
    net.enter(context)
    assert torch.equal(layer()[0], a)


def test_what_is_drawn_depends_on_seed_layer_and_top() -> None:
    text = TWO.replace("value: 1", 'type: "gaussian"')
    a, b = make_net(text, PassContext(seed=1)).layers[0]()
    same_a, same_b = make_net(text, PassContext(seed=1)).layers[0]()
    (other, _) = make_net(text, PassContext(seed=2)).layers[0]()
    assert torch.equal(a, same_a)
    assert torch.equal(b, same_b)
    assert not torch.equal(a, b)
    assert not torch.equal(a, other)


def test_constants_move_with_the_net_but_are_no_parameters() -> None:
    net = make_net(TWO).to(torch.float64)
    assert net.layers[0]()[1].dtype == torch.float64
    assert net.state_dict() == {}


def test_a_filler_that_cannot_fill_its_top() -> None:
    with pytest.raises(LayerError) as caught:
        make_net(f'top: "a" dummy_data_param {{ {SHAPE} data_filler {{ type: "bilinear" }} }}')
    assert str(caught.value) == (
        'layer "L": bilinear filler: needs a blob with 4 axes and a square kernel, not shape (2, 3)'
    )


@pytest.mark.parametrize(
    ("param", "message"),
    [
        ("§dummy_data_param {}", "needs one shape for all tops, or one a top (3), not 0"),
        (f"dummy_data_param {{ §{SHAPE} {SHAPE} }}", "needs one shape for all tops, or one a top (3), not 2"),
        (
            f"dummy_data_param {{ {SHAPE} §data_filler {{}} data_filler {{}} }}",
            "needs one data_filler for all tops, or one a top (3), not 2",
        ),
        (
            "dummy_data_param { §num: 1 num: 2 channels: 1 height: 1 width: 1 }",
            "needs one num for all tops, or one a top (3), not 2",
        ),
        ("§dummy_data_param { num: 1 channels: 1 height: 1 }", "needs one width for all tops, or one a top (3), not 0"),
        (
            f"dummy_data_param {{ {SHAPE} §num: 1 }}",
            "give shape or num, channels, height, width (its old form), not both",
        ),
    ],
)
def test_refusals(param: str, message: str) -> None:
    check_refusal(f'type: "DummyData" top: "p" top: "q" top: "r" {param}', message)


MIXED = """top: "a" top: "b" top: "c" dummy_data_param {
    shape { dim: 7 dim: 3 } shape { dim: 7 dim: 2 } shape {}
    data_filler { type: "gaussian" } data_filler { value: 4 } data_filler { value: 5 } }"""


@pytest.mark.parametrize("filler", ['type: "gaussian"', 'type: "xavier"', 'type: "uniform" max: 3'])
@pytest.mark.parametrize(("counts", "rotation"), [((4, 0, 3), 0.0), ((1, 6), 0.8)])
def test_rows_of_ranks_are_those_of_one_process(filler: str, counts: tuple[int, ...], rotation: float) -> None:
    text = MIXED.replace('type: "gaussian"', filler)
    whole = make_net(text, PassContext(seed=1)).layers[0]()
    for share in shares_of(counts):
        context = PassContext(seed=1, ranks=len(counts), split=lambda samples, share=share: share, rotation=rotation)  # type: ignore[misc]
        a, b, c = make_net(text, context).layers[0]()
        assert torch.equal(a, whole[0][rows_of(share, rotation)])
        assert b.tolist() == [[4.0, 4.0]] * share.count
        assert c.tolist() == 5
        test_net = Net(graph_of(f'layer {{ name: "L" type: "DummyData" {text} }}', pb.TEST), context)
        assert torch.equal(test_net.layers[0]()[0], whole[0][rows_of(share)])  # a test's shares are not turned


def test_constants_follow_the_balance() -> None:
    shares = [Share(0, 4, 7)]
    layer = make_net(MIXED, PassContext(ranks=2, split=lambda samples: shares[0])).layers[0]
    first = layer()[1]
    assert layer()[1] is first
    shares[0] = Share(0, 5, 7)
    second = layer()[1]
    assert second.tolist() == [[4.0, 4.0]] * 5
    assert layer()[1] is second


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
