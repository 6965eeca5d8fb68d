"""Nets that a device has no room for, and weights of another net: both are refused in words."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from bpt.base.errors import FileError, RunError
from bpt.config.plan.nets import file_plan
from bpt.config.proto import bpt_pb2 as pb
from bpt.graph.part import BlobSlice, Part
from bpt.graph.share import Share
from bpt.nn.net import Net
from bpt.nn.net_graph import build_graph_of
from bpt.nn.pass_context import PassContext
from bpt.system.device import CPU
from bpt.train.runtime import net_on_device as making
from bpt.train.runtime.net_on_device import make_net
from bpt.train.runtime.trained_weights import load_trained
from bpt.train.state import save_weights
from tests.support.golden_cases import graph_of

NET = """
name: "big"
layer { name: "in" type: "Input" top: "x" input_param { shape { dim: 1 dim: 16384 } } }
layer { name: "ip" type: "InnerProduct" bottom: "x" top: "y" inner_product_param { num_output: 32768 } }
"""
WEIGHTS = 2**31  # 2¹⁵ · 2¹⁴ · 4 bytes
BIAS = 2**17  # 2¹⁵ · 4
SMALL = NET.replace("num_output: 32768", 'num_output: 5 weight_filler { type: "gaussian" }')


def memory(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr(making, "obtainable_memory", lambda device: size)


@pytest.mark.parametrize(("phase", "size"), [(pb.TEST, WEIGHTS + BIAS), (pb.TRAIN, 2 * (WEIGHTS + BIAS))])
def test_what_just_fits_is_made(phase: int, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    memory(monkeypatch, size)
    made: list[str] = []
    monkeypatch.setattr(making, "Net", lambda graph, *more: made.append(graph.name) or nn.Identity())
    make_net(graph_of(NET, phase), CPU)
    assert made == ["big"]


@pytest.mark.parametrize(
    ("phase", "size", "message"),
    [
        (
            pb.TEST,
            WEIGHTS - 1,
            'layer "ip": parameter 0 of shape (32768, 16384) takes 2.0 GiB, but the device has 2.0 GiB of memory',
        ),
        (
            pb.TEST,
            WEIGHTS + BIAS - 1,
            'net "big": its 536903680 parameters take 2.0 GiB, but the device has 2.0 GiB of memory',
        ),
        (
            pb.TRAIN,
            3 * 2**30,
            'net "big": its 536903680 parameters and their gradients take 4.0 GiB, but the device has 3.0 GiB '
            "of memory",
        ),
    ],
)
def test_parameters_that_do_not_fit(phase: int, size: int, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    memory(monkeypatch, size)
    monkeypatch.setattr(making, "Net", None)  # nothing is made
    with pytest.raises(RunError) as caught:
        make_net(graph_of(NET, phase), CPU)
    assert str(caught.value) == message


def test_a_blob_too_big(monkeypatch: pytest.MonkeyPatch) -> None:
    memory(monkeypatch, 3 * 2**30)
    text = 'layer { name: "in" type: "Input" top: "x" input_param { shape { dim: 1024 dim: 1048576 } } }'
    with pytest.raises(RunError) as caught:
        make_net(graph_of(text), CPU)
    # 2¹⁰ · 2²⁰ · 4 bytes
    assert str(caught.value) == (
        'layer "in": top "x" of shape (1024, 1048576) takes 4.0 GiB, but the device has 3.0 GiB of memory'
    )


HALF = Part(None, {0: BlobSlice(0, 0, 2**14), 1: BlobSlice(0, 0, 2**14)})


@pytest.mark.parametrize("part", [HALF, Part(frozenset({0}))], ids=["a half", "elsewhere"])
def test_only_what_this_rank_holds_has_to_fit(part: Part, monkeypatch: pytest.MonkeyPatch) -> None:
    memory(monkeypatch, WEIGHTS + BIAS)  # of which the half and its gradients take all
    made: list[Part] = []
    monkeypatch.setattr(making, "Net", lambda *args: made.append(args[3]) or nn.Identity())
    make_net(graph_of(NET), CPU, part=part)
    assert made == [part]


@pytest.mark.parametrize(
    ("size", "message"),
    [
        (
            2**30 - 1,
            'layer "ip": parameter 0 of shape (16384, 16384) takes 1.0 GiB, but the device has 1.0 GiB of memory',
        ),
        (
            2**30 + 2**29,
            'net "big": its 268451840 parameters on this rank and their gradients take 2.0 GiB, but the device has '
            "1.5 GiB of memory",
        ),
    ],
)
def test_slices_that_do_not_fit(size: int, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    memory(monkeypatch, size)
    with pytest.raises(RunError) as caught:
        make_net(graph_of(NET), CPU, part=HALF)
    assert str(caught.value) == message


def test_ranks_share_the_rows_of_a_blob(monkeypatch: pytest.MonkeyPatch) -> None:
    memory(monkeypatch, 2**30)
    text = 'layer { name: "in" type: "Input" top: "x" input_param { shape { dim: 1024 dim: 1048576 } } }'
    make_net(graph_of(text), CPU, PassContext(ranks=4, split=lambda n: Share(0, n // 4, n)))  # 4 GiB in all
    with pytest.raises(RunError) as caught:
        make_net(graph_of(text), CPU, PassContext(ranks=2, split=lambda n: Share(0, n // 2, n)))
    assert str(caught.value) == (
        'layer "in": top "x" of shape (512, 1048576) takes 2.0 GiB, but the device has 1.0 GiB of memory'
    )


def fail_to_move(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def to(net: Net, device: torch.device) -> Net:
        raise error

    monkeypatch.setattr(Net, "to", to)


def test_a_device_that_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    fail_to_move(monkeypatch, torch.OutOfMemoryError("CUDA out of memory."))
    with pytest.raises(RunError) as caught:
        make_net(graph_of(SMALL), CPU)
    assert str(caught.value) == 'net "big": the device has no room for its parameters, which take 0.0 GiB'


def test_other_failures_keep_their_words(monkeypatch: pytest.MonkeyPatch) -> None:
    fail_to_move(monkeypatch, RuntimeError("no driver"))
    with pytest.raises(RuntimeError, match="no driver"):
        make_net(graph_of(SMALL), CPU)


def test_parameters_are_shared_and_drawn_from_the_context() -> None:
    first, again, other = (make_net(graph_of(SMALL), CPU, PassContext(seed=seed)) for seed in (1, 1, 2))
    weights = [next(net.parameters()) for net in (first, again, other)]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])
    sharing = make_net(graph_of(SMALL), CPU, PassContext(seed=2), first.values_by_name())
    assert next(sharing.parameters()) is weights[0]


INPUT = 'layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 1 dim: 2 } } }'
LAYER = """
layer { name: "%s" type: "InnerProduct" bottom: "data" top: "%s"
  inner_product_param { num_output: 1 bias_term: false weight_filler { type: "constant" value: %d } } }
"""


def net_of(text: str) -> Net:
    Path("net.prototxt").write_text(text)
    return make_net(build_graph_of(file_plan("net.prototxt", pb.TEST)), CPU)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, value in (("a", 3), ("b", 4)):
        save_weights(net_of(INPUT + LAYER % (name, name, value)), f"{name}.caffemodel")


def test_weights_of_another_net() -> None:
    net = net_of(INPUT + "".join(LAYER % (name, name, 7) for name in "bcde"))
    with pytest.raises(FileError) as caught:
        load_trained(net, ["a.caffemodel"], "net.prototxt")
    assert str(caught.value) == (
        "a.caffemodel: weights of another net: no layer is one of those with parameters in net.prototxt (b, c, d, …)"
    )
    assert [value.flatten().tolist() for value in net.parameters()] == [[7, 7]] * 4


def test_one_of_several_files_is_enough() -> None:
    net = net_of(INPUT + LAYER % ("b", "b", 7))
    assert load_trained(net, ["a.caffemodel,b.caffemodel"], "net.prototxt") == {"data", "a", "b"}
    assert [value.flatten().tolist() for value in net.parameters()] == [[4, 4]]


def test_a_net_without_parameters_takes_any() -> None:
    load_trained(net_of(INPUT), ["a.caffemodel"], "net.prototxt")
