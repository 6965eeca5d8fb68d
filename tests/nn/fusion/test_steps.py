"""Layers that run as one: which they are, and that they make what they make one by one."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor
from torch.nn.modules.module import register_module_forward_hook

from bpt.config.proto import bpt_pb2 as pb
from bpt.graph.autocast import half_precision
from bpt.nn.fusion.fusion_steps import plan_steps
from bpt.nn.fusion.operations import PreparedConvolution
from bpt.nn.kernels import packed
from bpt.nn.net import Net
from tests.nn.fusion.nets import a_pass, assert_same, edge_of, names, net_of, outputs, steps_of


def layer(name: str, kind: str, bottoms: str, more: str = "", in_place: bool = True) -> str:
    bottom = "".join(f' bottom: "{each}"' for each in bottoms.split())
    top = bottoms.split(maxsplit=1)[0] if in_place and kind != "Convolution" else name
    return f'layer {{ name: "{name}" type: "{kind}" {bottom} top: "{top}" {more} }} '


def convolution(name: str, bottom: str, more: str = "") -> str:
    param = "num_output: 4 kernel_size: 3 pad: 1 bias_term: false"
    filler = 'weight_filler { type: "gaussian" std: 0.5 }'
    return layer(name, "Convolution", bottom, f"{more} convolution_param {{ {param} {filler} }}")


def normed(name: str, bottom: str, relu: bool = True) -> str:
    """A convolution and what is behind it in a ResNet."""
    text = convolution(name, bottom) + layer(f"{name}_bn", "BatchNorm", name)
    text += layer(f"{name}_scale", "Scale", name, "scale_param { bias_term: true }")
    return text + layer(f"{name}_relu", "ReLU", name) * relu


BLOCK = (
    normed("a", "x")
    + normed("b", "a")
    + normed("c", "b", relu=False)
    + layer("sum", "Eltwise", "a c", in_place=False)
    + layer("sum_relu", "ReLU", "sum")
)
SUM = layer("sum", "Eltwise", "a b", in_place=False)
WIDE = "dim: 4 dim: 3 dim: 30 dim: 30"
FILLER = 'weight_filler { type: "gaussian" std: 0.02 }'
PRODUCTS = (
    layer("ip", "InnerProduct", "sum", f"inner_product_param {{ num_output: 800 axis: 1 {FILLER} }}", in_place=False)
    + layer("ip_relu", "ReLU", "ip")
    + layer("ip2", "InnerProduct", "ip", f"inner_product_param {{ num_output: 10 axis: 1 {FILLER} }}", in_place=False)
)
MAX_POOL = layer("pool", "Pooling", "a", "pooling_param { kernel_size: 3 stride: 2 }", in_place=False)
NETS = {
    "block": BLOCK,
    "behind BatchNorm alone": convolution("a", "x") + layer("bn", "BatchNorm", "a") + layer("r", "ReLU", "a"),
    "Scale without bias": convolution("a", "x") + layer("bn", "BatchNorm", "a") + layer("s", "Scale", "a"),
    "Bias": convolution("a", "x") + layer("bn", "BatchNorm", "a") + layer("bias", "Bias", "a"),
    "Scale and Bias behind a convolution": convolution("a", "x")
    + layer("s", "Scale", "a")
    + layer("bias", "Bias", "a")
    + layer("s2", "Scale", "a", "scale_param { bias_term: true }"),
    "ReLU and pooling": convolution("a", "x") + layer("r", "ReLU", "a") + MAX_POOL,
    "leaky": convolution("a", "x") + layer("r", "ReLU", "a", "relu_param { negative_slope: 0.1 }") + MAX_POOL,
    "falling": convolution("a", "x") + layer("r", "ReLU", "a", "relu_param { negative_slope: -0.1 }") + MAX_POOL,
    "an empty window": convolution("a", "x")
    + layer("r", "ReLU", "a")
    + layer("pool", "Pooling", "a", "pooling_param { kernel_size: 2 stride: 9 }", in_place=False),
    "weighted sum": convolution("a", "x")
    + convolution("b", "x")
    + convolution("c", "x")
    + layer("sum", "Eltwise", "a b c", "eltwise_param { coeff: 2 coeff: -1 coeff: 0.5 }", in_place=False),
    "product": convolution("a", "x")
    + convolution("b", "x")
    + layer("p", "Eltwise", "a b", "eltwise_param { operation: PROD stable_prod_grad: false }", in_place=False)
    + layer("r", "ReLU", "p"),
    "saturating": convolution("a", "x") + layer("s", "Sigmoid", "a") + convolution("b", "a") + layer("t", "TanH", "b"),
    "dropout": convolution("a", "x") + layer("d", "Dropout", "a") + convolution("b", "a") + layer("r", "ReLU6", "b"),
    "joined": convolution("a", "x")
    + convolution("b", "x")
    + layer("all", "Concat", "a b", in_place=False)
    + layer("r", "ReLU", "all"),
    "average of windows": convolution("a", "x")
    + layer("pool", "Pooling", "a", "pooling_param { pool: AVE kernel_size: 2 stride: 2 }", in_place=False)
    + layer("r", "ReLU", "pool"),
    "Scale of a blob": convolution("a", "x")
    + convolution("b", "x")
    + layer("s", "Scale", "a b", "scale_param { axis: 0 }")
    + layer("r", "ReLU", "a"),
}


@pytest.mark.parametrize("last", [True, False])
@pytest.mark.parametrize("phase", [pb.TRAIN, pb.TEST])
@pytest.mark.parametrize("name", NETS)
def test_the_same_values_and_gradients(name: str, phase: int, last: bool) -> None:
    for double, tolerance in ((True, 1e-12), (False, 2e-5)):
        nets = [net_of(NETS[name], phase=phase) for _ in range(2)]
        fused, plain = (a_pass(net, fused=net is nets[0], last=last, double=double) for net in nets)
        assert_same(fused, plain, tolerance)


@pytest.mark.parametrize("name", NETS)
def test_with_fixed_parameters(name: str) -> None:
    """Once as they are, once more by what was prepared; and then with others."""
    net = net_of(NETS[name], phase=pb.TEST)
    with torch.no_grad():
        for _ in range(2):
            plain = a_pass(net, fused=False, double=False)
            with net.fixed_parameters():
                assert_same(a_pass(net, fused=True, double=False), plain, 1e-5)
                assert_same(a_pass(net, fused=True, double=False), plain, 1e-5)
            for parameter in net.parameters():
                parameter.data.mul_(1.25)  # which no version of torch's counts


def test_the_layers_of_a_block() -> None:
    net = net_of(BLOCK)
    training = [
        ("a_bn a_scale", "FoldedAffine"),
        ("a_relu", "Overwriting"),
        ("b_bn b_scale", "FoldedAffine"),
        ("b_relu", "Overwriting"),
        ("c_bn c_scale", "FoldedAffine"),
        ("sum", "Overwriting"),
        ("sum_relu", "Overwriting"),
    ]
    assert steps_of(net) == training
    net = net_of(BLOCK, phase=pb.TEST)
    with torch.no_grad(), net.fixed_parameters():
        prepared = [
            ("a a_bn a_scale a_relu", "PreparedConvolution"),
            ("b b_bn b_scale b_relu", "PreparedConvolution"),
            ("c c_bn c_scale sum sum_relu", "PreparedConvolution"),
        ]
        assert steps_of(net) == prepared


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        (BOTH := convolution("a", "x") + convolution("b", "x") + SUM, ["a", "b sum"]),
        (BOTH.replace('"a" bottom: "b"', '"b" bottom: "a"'), ["a", "b sum"]),
        (BOTH + layer("r", "ReLU", "sum", "relu_param { negative_slope: 0.1 }"), ["a", "b sum", "r"]),
        (BOTH.replace(SUM, layer("sum", "Eltwise", "a b", "eltwise_param { coeff: 1 coeff: 2 }")), ["a", "b", "sum"]),
        (convolution("a", "x") + convolution("b", "a") + SUM, ["a", "b sum"]),
    ],
)
def test_sums_that_a_convolution_does(text: str, steps: list[str]) -> None:
    net = net_of(text, phase=pb.TEST)
    with torch.no_grad():
        plain = a_pass(net, fused=False, double=False)
        with net.fixed_parameters():
            assert [names for names, _ in steps_of(net)] == steps
            assert_same(a_pass(net, fused=True, double=False), plain, 1e-5)


TWO_BLOCKS = (
    BLOCK
    + convolution("c2", "sum")
    + convolution("d", "c2")
    + layer("sum2", "Eltwise", "sum d", in_place=False)
    + layer("r2", "ReLU", "sum2")
    + convolution("e", "sum2")
)


@pytest.mark.parametrize("keep", ["", "sum_relu", "sum2", "a_relu"])
@pytest.mark.parametrize(
    "more",
    [
        "",
        layer("flat", "Flatten", "sum", in_place=False),  # reads the same memory later
        layer("drop", "Dropout", "sum", in_place=False) + convolution("f", "drop"),
        layer("tanh", "TanH", "sum", in_place=False),
    ],
)
@pytest.mark.parametrize("first", [False, True])
def test_sums_over_a_blob_that_nobody_else_needs(keep: str, more: str, first: bool) -> None:
    text = TWO_BLOCKS.replace(convolution("c2", "sum"), more + convolution("c2", "sum")) if first else TWO_BLOCKS + more
    net = net_of(text, phase=pb.TEST)
    kept = {edge_of(net.graph, keep)} if keep else set()
    with torch.no_grad():
        plain = a_pass(net, fused=False, double=False, keep=kept)
        with net.fixed_parameters():
            for _ in range(2):
                assert_same(a_pass(net, fused=True, double=False, keep=kept), plain, 1e-5)
            steps = net.steps(range(len(net.graph)), {edge.index for edge in net.graph.outputs} | kept)
    over = {names(step): step.operation._over for step in steps if isinstance(step.operation, PreparedConvolution)}
    assert over["d sum2 r2" if keep != "sum2" else "d sum2"] == (not more and keep != "sum_relu")


@pytest.mark.parametrize("hooked", ["b", "sum_relu", "c2"])
def test_hooks_see_what_prepared_convolutions_leave_as_it_is(hooked: str) -> None:
    net = net_of(TWO_BLOCKS, phase=pb.TEST)
    seen: list[tuple[Tensor, Tensor]] = []
    net.layers[net.graph.index_of[hooked]].register_forward_hook(
        lambda layer, bottoms, top: seen.extend((each, each.clone()) for each in (*bottoms, top))
    )
    with torch.no_grad():
        plain = a_pass(net, fused=False, double=False)
        seen.clear()
        with net.fixed_parameters():
            assert_same(a_pass(net, fused=True, double=False), plain, 1e-5)
    assert len(seen) == 2
    assert all(torch.equal(afterwards, at_once) for afterwards, at_once in seen)


def test_without_packed_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where torch's own operators for them do not work."""
    monkeypatch.setattr(packed, "works", lambda: False)
    monkeypatch.setattr(packed, "multiplies", lambda: False)
    net = net_of(BLOCK + PRODUCTS, phase=pb.TEST, shape=WIDE)
    with torch.no_grad():
        plain = a_pass(net, fused=False, double=False)
        with net.fixed_parameters():
            assert_same(a_pass(net, fused=True, double=False), plain, 1e-5)


@pytest.mark.parametrize("transpose", [False, True])
def test_products(transpose: bool) -> None:
    """Of packed weights; of another batch by others."""
    text = PRODUCTS.replace("axis", f"transpose: {str(transpose).lower()} axis").replace('"sum"', '"x"')
    net = net_of(text, phase=pb.TEST, shape=WIDE)
    with torch.no_grad(), net.fixed_parameters():
        assert steps_of(net) == [("ip ip_relu", "PreparedProduct"), ("ip2", "PreparedProduct")]
        for rows in (4, 2, 4):
            x = torch.randn(rows, 3, 30, 30, generator=torch.Generator().manual_seed(1))
            every: dict[int, Tensor] = {0: x}
            net.run(0, len(net.graph), every)
            torch.testing.assert_close(net(x), every[net.graph.outputs[0].index], rtol=1e-5, atol=1e-5)


def test_a_scope_of_fixed_parameters_within_another() -> None:
    net = net_of(BLOCK, phase=pb.TEST)
    with torch.no_grad(), net.fixed_parameters():
        a_pass(net, fused=True, double=False)
        before = net.steps(range(len(net.graph)), {*(edge.index for edge in net.graph.outputs)})
        with net.fixed_parameters():
            pass
        assert net.steps(range(len(net.graph)), {*(edge.index for edge in net.graph.outputs)}) is before


def test_images_become_channels_last_by_themselves() -> None:
    net = net_of(BLOCK, phase=pb.TEST)
    with torch.no_grad(), net.fixed_parameters():
        x = torch.randn(1, 3, 9, 8)
        assert torch.is_tensor(top := net(x))
        assert top.is_contiguous(memory_format=torch.channels_last)


def test_a_frozen_batch_norm_goes_into_the_convolution_in_training() -> None:
    frozen = "batch_norm_param { use_global_stats: true }"
    text = convolution("a", "x") + layer("bn", "BatchNorm", "a", frozen) + layer("s", "Scale", "a")
    assert steps_of(net_of(text)) == [("a bn s", "FoldedAffine")]
    assert_same(a_pass(net_of(text), fused=True), a_pass(net_of(text), fused=False), 1e-12)


def test_training_and_testing_in_turn() -> None:
    """A module's mode may change between passes, layer by layer."""
    net, other = net_of(NETS["Bias"]), net_of(NETS["Bias"])
    for mode in (True, False, True):
        for each in (*net.layers, *other.layers):
            each.train(mode)
        assert_same(a_pass(net, fused=True), a_pass(other, fused=False), 1e-12)


def test_kept_blobs_have_their_true_values() -> None:
    for wanted in ("a", "a_bn", "a_scale", "c_scale", "sum"):
        nets = net_of(BLOCK), net_of(BLOCK)
        keep = {edge_of(nets[0].graph, wanted)}
        runs = [a_pass(net, fused=fused, keep=keep) for net, fused in zip(nets, (True, False), strict=True)]
        assert f"value {min(keep)}" in runs[0]
        assert_same(runs[0], runs[1], 1e-12)


@pytest.mark.parametrize("hooked", ["a", "a_scale", "a_relu"])
def test_hooks_see_all_that_passes(hooked: str) -> None:
    net, plain = net_of(BLOCK), net_of(BLOCK)
    index = net.graph.index_of[hooked]
    seen: list[tuple[Tensor, Tensor]] = []
    net.layers[index].register_forward_hook(lambda layer, bottoms, top: seen.append((bottoms[0], bottoms[0].clone())))
    a_pass(net, fused=True)
    ((bottom, at_once),) = seen
    (read,) = plain.graph.nodes[index].bottoms
    assert torch.equal(bottom, at_once)  # nobody has written over it since
    torch.testing.assert_close(bottom, a_pass(plain, fused=False, keep={read})[f"value {read}"])


def test_diffs_that_stop_inside() -> None:
    """``propagate_down: false`` cuts a diff off; a loss in the middle adds one."""
    cut = convolution("a", "x") + layer("bn", "BatchNorm", "a") + layer("s", "Scale", "a", "propagate_down: false")
    runs = [a_pass(net_of(cut.replace("force", "")), fused=fused) for fused in (True, False)]
    assert_same(runs[0], runs[1], 1e-12)
    weighted = layer("n", "BatchNorm", "a", "loss_weight: 2", in_place=False) + layer("s", "Scale", "n", in_place=False)
    assert steps_of(net_of(convolution("a", "x") + weighted)) == []


def test_all_blobs_are_made_where_no_edges_are_named() -> None:
    net = net_of(BLOCK)
    assert all(step.operation is None for step in net.steps(range(len(net.graph)), None))


@pytest.mark.parametrize("place", ["weight", "bottom"])
def test_what_is_no_number_stays_that(place: str) -> None:
    """oneDNN's ReLU makes 0 of NaN, by which a net that has diverged would look as if it had not."""
    net = net_of(BLOCK + PRODUCTS, phase=pb.TEST, shape=WIDE)
    names = dict.fromkeys(edge.blob for edge in net.graph.outputs)
    x = torch.ones(net.graph.edges[0].shape)
    if place == "weight":
        net.value(net.graph.params[0]).data.fill_(torch.nan)
    else:
        x[0, 0, 0, 0] = torch.nan
    with torch.no_grad(), net.fixed_parameters():
        tops = net(x)
    assert names and torch.as_tensor(tops if isinstance(tops, Tensor) else tops[0]).isnan().any()


HOOKS = {
    "backward": lambda layer, call: layer.register_full_backward_hook(call),
    "backward, before": lambda layer, call: layer.register_full_backward_pre_hook(call),
    "of all modules": lambda layer, call: register_module_forward_hook(call),
}


@pytest.mark.parametrize("kind", HOOKS)
def test_other_hooks_are_called_too(kind: str) -> None:
    net = net_of(BLOCK)
    called: list[object] = []
    handle = HOOKS[kind](net.layers[net.graph.index_of["a_scale"]], lambda layer, *rest: called.append(layer))
    try:
        a_pass(net, fused=True)
    finally:
        handle.remove()
    assert net.layers[net.graph.index_of["a_scale"]] in called


def test_a_copy_within_the_scope_plans_anew() -> None:
    net = net_of(BLOCK, phase=pb.TEST)
    x = torch.ones(net.graph.edges[0].shape)
    with torch.no_grad(), net.fixed_parameters():
        expected = net(x)
        copied = copy.deepcopy(net)
        torch.testing.assert_close(copied(x), expected)


def test_a_sum_of_half_and_single_precision_is_not_made_in_half() -> None:
    text = convolution("a", "x") + convolution("b", "x") + layer("sum", "Eltwise", "a b", in_place=False)
    net = net_of(text, phase=pb.TEST)
    net.precision.in_half = half_precision(net.graph, {"a"})
    assert steps_of_fixed(net) == ["a", "b"]  # each alone, the sum by itself


def steps_of_fixed(net: Net) -> list[str]:
    layers = [net.layer(node) for node in net.graph.nodes]
    steps = plan_steps(
        net.graph, layers, range(len(layers)), outputs(net), net.precision.in_half, grad=False, fixed=True
    )
    return [names(step) for step in steps if isinstance(step.operation, PreparedConvolution)]
