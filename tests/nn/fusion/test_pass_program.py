"""Passes that run as one program of torch's: the numbers of the single layers, also where a program would be wrong."""

from __future__ import annotations

from collections.abc import Collection
from math import inf, nan

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from bpt.config.proto import bpt_pb2 as pb
from bpt.nn.fusion import operations
from bpt.nn.fusion.fixed_steps import FixedSteps
from bpt.nn.fusion.fusion_steps import one_by_one
from bpt.nn.fusion.magnitudes import bound_of
from bpt.nn.net import Net
from tests.nn.fusion.nets import edge_of, net_of, outputs

GAUSS = 'weight_filler { type: "gaussian" std: 0.3 }'


def layer(name: str, kind: str, bottoms: str, top: str = "", more: str = "") -> str:
    bottom = "".join(f' bottom: "{each}"' for each in bottoms.split())
    return f'layer {{ name: "{name}" type: "{kind}" {bottom} top: "{top or name}" {more} }} '


def convolution(name: str, bottom: str, more: str = "kernel_size: 3 pad: 1") -> str:
    return layer(name, "Convolution", bottom, more=f"convolution_param {{ num_output: 4 {more} {GAUSS} }}")


def product(bottom: str) -> str:
    return layer("ip", "InnerProduct", bottom, more=f"inner_product_param {{ num_output: 5 axis: 1 {GAUSS} }}")


MAX = "pooling_param { kernel_size: 3 stride: 2 pad: 1 }"
POOLED = convolution("a", "x") + layer("r", "ReLU", "a", "a") + layer("p", "Pooling", "a", more=MAX)
NETS = {
    "LeNet": POOLED + convolution("b", "p", "kernel_size: 2") + product("b") + layer("prob", "Softmax", "ip"),
    "pool before ReLU": convolution("a", "x") + layer("p", "Pooling", "a", more=MAX) + layer("r", "ReLU", "p", "p"),
    "residual": convolution("a", "x")
    + layer("bn", "BatchNorm", "a", "a")
    + layer("s", "Scale", "a", "a", "scale_param { bias_term: true }")
    + layer("ar", "ReLU", "a", "a")
    + convolution("b", "a")
    + layer("sum", "Eltwise", "a b")
    + layer("r", "ReLU", "sum", "sum")
    + layer("p", "Pooling", "sum", more="pooling_param { pool: AVE global_pooling: true }")
    + product("p"),
    "inception": POOLED
    + layer("n", "LRN", "p")
    + convolution("b", "n", "kernel_size: 1")
    + convolution("c", "n", "kernel_size: 3 pad: 1 stride: 1 group: 2")
    + layer("all", "Concat", "b c")
    + layer("d", "Dropout", "all", "all")
    + layer("q", "Pooling", "all", more="pooling_param { pool: AVE kernel_size: 3 stride: 2 }")
    + layer("t", "TanH", "q"),
    "averages": convolution("a", "x")
    + layer("over", "Pooling", "a", more="pooling_param { pool: AVE kernel_size: 3 stride: 2 }")
    + layer("padded", "Pooling", "over", more="pooling_param { pool: AVE kernel_size: 3 stride: 1 pad: 1 }")
    + layer("all", "Pooling", "padded", more="pooling_param { pool: AVE kernel_size: 4 }")
    + product("all"),
    "odd windows": POOLED
    + layer("w", "Pooling", "p", more="pooling_param { kernel_size: 2 stride: 2 round_mode: FLOOR }")
    + layer("z", "Power", "w", more="power_param { scale: -2 shift: 1 }")
    + layer("six", "ReLU6", "z")
    + layer("half", "Sigmoid", "six")
    + layer("flat", "Flatten", "half"),
}


def run(net: Net, x: Tensor, plain: bool = False, keep: Collection[int] = ()) -> list[Tensor]:
    """Return the outputs, and the edges of ``keep``, of a pass."""
    kept = {*outputs(net), *keep}
    values = {0: x.clone()}
    whole = range(len(net.graph))
    net.run(0, len(net.graph), values, kept, steps=one_by_one(net.graph, whole) if plain else None)
    assert set(values) == kept or plain
    return [values[edge].clone() for edge in sorted(kept)]


def programs(net: Net) -> int:
    steps = net.steps(range(len(net.graph)), {*outputs(net)})
    assert isinstance(steps, FixedSteps)
    return steps.num_programs


def images(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape or (4, 3, 9, 8), generator=torch.Generator().manual_seed(seed))


def assert_same(tops: list[Tensor], plain: list[Tensor]) -> None:
    for top, wanted in zip(tops, plain, strict=True):
        assert_close(top, wanted, rtol=1e-5, atol=1e-5, equal_nan=True)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("name", NETS)
def test_the_numbers_of_single_layers(name: str, mode: type[torch.no_grad]) -> None:
    net = net_of(NETS[name], phase=pb.TEST)
    with mode(), net.fixed_parameters():
        for seed in range(5):
            x = images(seed=seed)
            assert_same(run(net, x), run(net, x, plain=True))
        assert programs(net) == 1
    assert not torch.jit.onednn_fusion_enabled()


def test_a_product_with_many_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its weights keep the text's order, and a channels-last bottom is copied into it."""
    monkeypatch.setattr(operations, "FEW", 0)
    net = net_of(NETS["LeNet"], phase=pb.TEST)
    with torch.no_grad(), net.fixed_parameters():
        for seed in range(5):
            x = images(seed=seed)
            assert_same(run(net, x), run(net, x, plain=True))
        assert programs(net) == 1


@pytest.mark.parametrize("number", [nan, inf, 1e30, -3e38])
@pytest.mark.parametrize("name", ["LeNet", "pool before ReLU", "inception"])
def test_numbers_that_overflow_show(name: str, number: float) -> None:
    net = net_of(NETS[name], phase=pb.TEST)
    with torch.no_grad(), net.fixed_parameters():
        for _ in range(3):
            run(net, images())
        assert programs(net) == 1
        x = images()
        x[1, 0, 4, 4] = number
        assert_same(run(net, x), run(net, x, plain=True))


def test_weights_that_have_diverged_have_no_program() -> None:
    net = net_of(NETS["LeNet"], phase=pb.TEST)
    with torch.no_grad(), net.fixed_parameters():
        net.value(net.graph.learnable[0])[0, 0] = nan
        for _ in range(4):
            assert_same(run(net, images()), run(net, images(), plain=True))
        assert programs(net) == 0


def test_parameters_count_that_changed_between_two_scopes() -> None:
    net = net_of(NETS["LeNet"], phase=pb.TEST)
    with torch.no_grad():
        for _ in range(2):
            with net.fixed_parameters():
                for _ in range(4):
                    assert_same(run(net, images()), run(net, images(), plain=True))
                assert programs(net) == 1
            for parameter in net.parameters():
                parameter.data.mul_(1.25)


def test_batches_of_other_sizes() -> None:
    """Two of them have programs; the others run by steps."""
    net = net_of(NETS["LeNet"], phase=pb.TEST)
    with torch.no_grad(), net.fixed_parameters():
        for size in (4, 1, 4, 1, 2) * 3:
            x = images(size, 3, 9, 8, seed=size)
            assert_same(run(net, x), run(net, x, plain=True))
        assert programs(net) == 2


def test_a_hook_sees_each_pass() -> None:
    net = net_of(NETS["LeNet"], phase=pb.TEST)
    seen: list[Tensor] = []
    with torch.no_grad(), net.fixed_parameters():
        for _ in range(3):
            run(net, images())
        hook = net.layers[net.graph.index_of["a"]].register_forward_hook(lambda *call: seen.append(call[2]))
        run(net, images())
        hook.remove()
        run(net, images())
    assert len(seen) == 1


def test_blobs_that_are_kept() -> None:
    net = net_of(NETS["residual"], phase=pb.TEST)
    keep = [edge_of(net.graph, "bn"), edge_of(net.graph, "sum")]
    with torch.no_grad(), net.fixed_parameters():
        for seed in range(4):
            x = images(seed=seed)
            assert_same(run(net, x, keep=keep), run(net, x, plain=True, keep=keep))


@pytest.mark.parametrize(
    ("text", "bounds", "expected"),
    [
        (layer("r", "ReLU", "x", more="relu_param { negative_slope: -2 }"), [3.0], 6.0),
        (layer("z", "Power", "x", more="power_param { scale: -2 shift: 1 }"), [3.0], 7.0),
        (layer("z", "Power", "x", more="power_param { power: 2 }"), [3.0], inf),
        (layer("z", "Power", "x", more="power_param { scale: 0 shift: 5 }"), [3.0], 5.0),
        (layer("n", "LRN", "x", more="lrn_param { k: 4 beta: 0.5 }"), [6.0], 3.0),
        (layer("n", "LRN", "x", more="lrn_param { alpha: -1 }"), [6.0], inf),
        (layer("t", "TanH", "x"), [9.0], 1.0),
    ],
)
def test_bounds_by_hand(text: str, bounds: list[float], expected: float) -> None:
    net = net_of(text, phase=pb.TEST)
    (step,) = one_by_one(net.graph, range(1, 2))
    assert bound_of(step, [net.layer(node) for node in net.graph.nodes], bounds) == pytest.approx(expected)


def test_the_bound_of_a_convolution_is_reached() -> None:
    """By images of the signs of its widest filter."""
    net = net_of(convolution("a", "x", "kernel_h: 9 kernel_w: 8"), phase=pb.TEST)
    weight = net.value(net.graph.learnable[0])
    with torch.no_grad(), net.fixed_parameters():
        largest = weight.detach().abs().flatten(1).sum(1).argmax()
        (top,) = run(net, 2 * weight.detach()[largest : largest + 1].sign())
        step = net.steps(range(len(net.graph)), outputs(net))[-1]
        assert bound_of(step, [], [2.0]) == pytest.approx(float(top.abs().max()))
