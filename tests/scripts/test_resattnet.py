"""3D-ResAttNet: shapes, the small net against plain PyTorch, and its deploy text as a module."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn import functional

import bpt
from bpt.caffe.netspec import L, NetSpec
from bpt.config.proto import bpt_pb2 as pb
from bpt.nn.net import Net
from scripts.networks.resattnet import self_attention
from tests.support.net_cases import graph_in, read_net, with_inputs
from tests.support.paths import PROTOTXT

Values = Callable[[str, int], Tensor]
FOLDERS = {"resattnet18_3d": (2, 2, 2, 2), "resattnet34_3d": (3, 4, 6, 3)}


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(("folder", "blocks"), FOLDERS.items())
def test_shapes(folder: str, blocks: tuple[int, ...]) -> None:
    """112 voxels an axis; 56 behind the first convolution and 28 behind the pool; then halves, rounded up."""
    graph = graph_in(read_net(f"{folder}/deploy.prototxt"), pb.TEST)
    shapes = {name: edge.shape for name, edge in graph.blobs.items()}
    assert shapes["data"] == (1, 1, 112, 112, 112)
    assert shapes["conv1"] == (1, 64, 56, 56, 56)
    assert shapes["pool1"] == (1, 64, 28, 28, 28)
    for stage, (number, channels, size) in enumerate(zip(blocks, (64, 128, 256, 512), (28, 14, 7, 4), strict=True), 1):
        names = [f"res{stage}_{index}" for index in range(1, number + 1)]
        assert all(shapes[name] == (1, channels, size, size, size) for name in names)
        attentions = [name for name in shapes if name.startswith(f"att{stage}_") and name.count("_") == 1]
        assert len(attentions) == (number if stage > 1 else 0)
        assert all(shapes[f"{name}_f"] == shapes[f"{name}_g"] == (1, channels // 8, *[size] * 3) for name in attentions)
        assert all(shapes[name] == shapes[f"{name}_h"] == (1, channels, *[size] * 3) for name in attentions)
    assert shapes["pool5"] == (1, 512, 1, 1, 1)
    assert shapes["prob"] == (1, 2)
    # Convolutions that count: the first, two a block, the classifier.
    assert folder == f"resattnet{1 + 2 * sum(blocks) + 1}_3d"


def test_self_attention_passes_its_bottom_on_at_first() -> None:
    n = NetSpec()
    n.data = L.Input(shape={"dim": [2, 16, 2, 3, 2]})
    self_attention(n, n.data, "att", 16)
    x = drawn(2, 16, 2, 3, 2)
    assert torch.equal(Net(graph_in(n.to_proto(), pb.TEST))(x), x)


def plain_conv(x: Tensor, value: Values, name: str, stride: int) -> Tensor:
    weight = value(name, 0)
    y = functional.conv3d(x, weight, stride=stride, padding=weight.shape[2] // 2)
    return functional.batch_norm(y, None, None, value(f"scale_{name}", 0), value(f"scale_{name}", 1), training=True)


def plain_attention(x: Tensor, value: Values, name: str) -> Tensor:
    """SAGAN's equations, with all weights of all places at once."""
    f = functional.conv3d(x, value(f"{name}_f", 0)).flatten(2)
    g, h = (
        functional.conv3d(x, value(f"{name}_{letter}", 0), value(f"{name}_{letter}", 1)).flatten(2) for letter in "gh"
    )
    weights = torch.einsum("nci,ncj->nij", f, g).softmax(1)  # of key i for query j
    return x + value(f"{name}_gamma", 0) * torch.einsum("nci,nij->ncj", h, weights).view_as(x)


def plain_net(x: Tensor, value: Values) -> Tensor:
    """The scores of the small net, in plain PyTorch."""
    x = functional.max_pool3d(plain_conv(x, value, "conv1", 2).relu(), 3, 2, ceil_mode=True)
    for stage in (1, 2, 3, 4):
        for index in (1, 2):
            name = f"res{stage}_{index}"
            first = stage > 1 and index == 1
            shortcut = plain_conv(x, value, f"{name}_shortcut", 1) if first else x
            y = plain_conv(x, value, f"{name}a", 1).relu()
            x = (shortcut + plain_conv(y, value, f"{name}b", 1)).relu()
            x = plain_attention(x, value, f"att{stage}_{index}") if stage > 1 else x
    return functional.linear(x.mean((2, 3, 4)), value("fc", 0), value("fc", 1))


def test_the_small_net_is_what_plain_torch_computes() -> None:
    shapes = {"data": (3, 1, 32, 32, 32), "label": (3,)}
    text = with_inputs(read_net("resattnet18_3d/train_val_small.prototxt"), pb.TRAIN, shapes)
    net = Net(graph_in(text, pb.TRAIN)).double()
    values = net.values_by_name()
    with torch.no_grad():
        for seed, value in enumerate(values.values()):
            if value.dim() == 0:  # gamma: all the attention counts
                value.fill_(0.3)
            elif value.dim() == 1 and value.requires_grad:
                value.copy_(1 + 0.2 * drawn(*value.shape, seed=seed))
        values["fc", 0].copy_(drawn(2, 32))  # which starts near 0
    leaves = [value for value in values.values() if value.requires_grad]
    x, label = drawn(*shapes["data"]).double(), torch.tensor([0.0, 1, 1]).double()
    ours = net(x, label)
    loss = ours if isinstance(ours, Tensor) else ours[0]
    score = plain_net(x, lambda layer, blob: values[layer, blob])
    wanted = functional.cross_entropy(score, label.long())
    torch.testing.assert_close(loss, wanted)
    gradients = torch.autograd.grad(loss, leaves)
    torch.testing.assert_close(gradients, torch.autograd.grad(wanted, leaves))
    assert all(gradient.any() for gradient in gradients)


def test_small_deploy_as_a_module(tmp_path: Path) -> None:
    deploy = str(PROTOTXT / "resattnet18_3d" / "deploy_small.prototxt")
    net = bpt.Net(deploy, bpt.TEST)
    for name, params in net.params.items():
        if name.startswith("bn_"):
            for param, value in zip(params, (0.1, 2.0, 1.0), strict=True):  # mean, variance and weight
                param.data[...] = value
    net.save(tmp_path / "w.caffemodel")
    module = bpt.load_module(deploy, tmp_path / "w.caffemodel")
    assert module.inputs == ["data"]
    x = drawn(5, 1, 32, 32, 32)
    prob = module(x)
    torch.testing.assert_close(prob.sum(1), torch.ones(5))
    net.blobs["data"].reshape(*x.shape)
    net.blobs["data"].data[...] = x.numpy()
    torch.testing.assert_close(prob.detach(), torch.from_numpy(net.forward()["prob"].copy()))


def test_small_weights_fit_from_training_to_testing_and_use() -> None:
    def shapes(name: str, phase: int) -> dict[tuple[str, int], tuple[int, ...]]:
        net = read_net(f"resattnet18_3d/{name}.prototxt")
        fed = with_inputs(net, phase, {"data": (2, 1, 32, 32, 32), "label": (2,)}) if "train" in name else net
        graph = graph_in(fed, phase)
        return {(graph.nodes[param.layer].name, param.blob): param.shape for param in graph.params}

    trained = shapes("train_val_small", pb.TRAIN)
    assert shapes("train_val_small", pb.TEST) == trained
    assert shapes("deploy_small", pb.TEST) == trained
