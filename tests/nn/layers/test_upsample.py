"""Upsample: repeats and unpools by hand, and SegNet's way down and up again in a net that learns."""

from __future__ import annotations

import pytest
import torch

from bpt.base.errors import RunError
from bpt.nn.net import Net
from bpt.nn.pass_context import PassContext
from tests.support.golden_cases import graph_of
from tests.support.gradient_checker import check_gradients, spaced
from tests.support.one_layer import gradient_of, one_layer, shapes_of

Shape = tuple[int, ...]


def body(settings: str = "") -> str:
    return f'type: "Upsample" upsample_param {{ {settings} }}'


def test_repeats() -> None:
    x = torch.tensor([[1.0, 2], [3, 4]])[None, None]
    top = one_layer(body("scale: 2"), (1, 1, 2, 2))(x)
    assert top.squeeze().tolist() == [[1, 1, 2, 2], [1, 1, 2, 2], [3, 3, 4, 4], [3, 3, 4, 4]]
    top = one_layer(body("scale_h: 1 scale_w: 3"), (1, 1, 2, 2))(x)
    assert top.squeeze().tolist() == [[1, 1, 1, 2, 2, 2], [3, 3, 3, 4, 4, 4]]


def test_unpools_by_hand() -> None:
    x = torch.tensor([[1.0, 2], [3, 4]])[None, None].requires_grad_()
    mask = torch.tensor([[4.0, 1], [4, -1]])[None, None]
    top = one_layer(body("upsample_h: 2 upsample_w: 3"), (1, 1, 2, 2), (1, 1, 2, 2))(x, mask)
    assert top.squeeze().tolist() == [[0, 2, 0], [0, 3, 0]]  # of 1 and 3 the last one; 4 is nowhere
    (diff,) = torch.autograd.grad(top, x, torch.arange(1.0, 7).reshape(1, 1, 2, 3))
    assert diff.squeeze().tolist() == [[5, 2], [5, 0]]  # both 1 and 3 get the diff of their place, as in SegNet


@pytest.mark.parametrize(
    ("shape", "pooling", "settings"),
    [
        ((2, 3, 6, 4), "kernel_size: 2 stride: 2", ""),
        ((2, 3, 5, 7), "kernel_size: 2 stride: 2", "pad_out_h: true pad_out_w: true"),
        ((2, 3, 5, 8), "kernel_size: 2 stride: 2", "scale: 2 upsample_h: 5 upsample_w: 8"),
        ((1, 2, 6, 4), "kernel_h: 3 kernel_w: 2 stride_h: 3 stride_w: 2", "scale_h: 3 scale_w: 2"),
        ((2, 1, 8), "kernel_size: 4 stride: 4", "scale: 4"),
        ((1, 2, 4, 2, 6), "kernel_size: 2 stride: 2", "scale: 2"),
    ],
)
def test_undoes_a_max_pooling(shape: Shape, pooling: str, settings: str) -> None:
    x = spaced(shape)
    pool = one_layer(f'type: "Pooling" pooling_param {{ {pooling} }}', shape, tops=2)
    values, mask = pool(x)
    back = one_layer(body(settings), tuple(values.shape), tuple(mask.shape))(values, mask)
    assert back.shape == shape
    torch.testing.assert_close(back, torch.where(back != 0, x, 0))
    assert torch.equal(back.flatten(2).sort()[0][..., -1], values.flatten(2).amax(2).clamp(min=0))
    assert int((back != 0).sum()) == values.numel()
    check_gradients(body(settings), values, mask, constant=(1,))


def test_overlapping_windows() -> None:
    x = torch.tensor([0.0, 9, 1, 2, 8])[None, None]
    pool = one_layer('type: "Pooling" pooling_param { kernel_size: 3 }', (1, 1, 5), tops=2)
    _, mask = pool(x)
    assert mask.flatten().tolist() == [1, 1, 4]
    layer = one_layer(body("scale: 2"), (1, 1, 3), (1, 1, 3))
    assert layer(torch.tensor([[[5.0, 6, 7]]]), mask).flatten().tolist() == [0, 6, 0, 0, 7, 0]


def test_a_mask_from_elsewhere() -> None:
    layer = one_layer(body("upsample_h: 2 upsample_w: 2"), (1, 1, 1, 2), (1, 1, 1, 2))
    for place in (4.0, -2.0, 100.0):
        with pytest.raises(RunError) as caught:
            layer(torch.ones(1, 1, 1, 2), torch.tensor([[[[0.0, place]]]]))
        assert str(caught.value) == (
            'layer "L": the mask names places beyond a plane of (2, 2); '
            "give the size of what the Pooling read as upsample_h and upsample_w"
        )


SEGNET = """
layer { name: "in" type: "Input" top: "data" top: "label"
        input_param { shape { dim: 4 dim: 2 dim: 7 dim: 6 } shape { dim: 4 dim: 1 dim: 7 dim: 6 } } }
layer { name: "conv1" type: "Convolution" bottom: "data" top: "c1"
        convolution_param { num_output: 6 kernel_size: 3 pad: 1 weight_filler { type: "msra" } } }
layer { name: "relu1" type: "ReLU" bottom: "c1" top: "c1" }
layer { name: "pool1" type: "Pooling" bottom: "c1" top: "p1" top: "p1_mask"
        pooling_param { pool: MAX kernel_size: 2 stride: 2 } }
layer { name: "conv2" type: "Convolution" bottom: "p1" top: "c2"
        convolution_param { num_output: 6 kernel_size: 3 pad: 1 weight_filler { type: "msra" } } }
layer { name: "upsample1" type: "Upsample" bottom: "c2" bottom: "p1_mask" top: "u1"
        upsample_param { scale: 2 upsample_h: 7 upsample_w: 6 } }
layer { name: "classifier" type: "Convolution" bottom: "u1" top: "scores"
        convolution_param { num_output: 2 kernel_size: 3 pad: 1 weight_filler { type: "msra" } } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "scores" bottom: "label" top: "loss" }
"""


def test_a_segnet_learns() -> None:
    net = Net(graph_of(SEGNET), PassContext(seed=1))
    data = torch.randn(4, 2, 7, 6, generator=torch.Generator().manual_seed(2))
    label = (data[:, :1] > data[:, 1:]).float()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.2, momentum=0.9)
    losses = []
    for _ in range(60):
        optimizer.zero_grad()
        loss = net(data, label)
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.5 * losses[0]
    assert all(bool(gradient_of(parameter).abs().max() > 0) for parameter in net.parameters())


def test_mixes_no_samples() -> None:
    layer = one_layer(body(), (2, 1, 2, 2), (2, 1, 2, 2))
    assert layer.mixes_samples(layer.spec, [(2, 1, 2, 2)] * 2) == ""


def test_shape() -> None:
    assert shapes_of(body("scale: 2"), (1, 1, 3, 3)) == ((1, 1, 6, 6),)


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")  # torch's own, of a Function
def test_unpooling_is_traced_and_takes_no_samples() -> None:
    shape = (3, 2, 2, 3)
    layer = one_layer(body(), shape, shape)
    values, mask = spaced(shape), (spaced(shape, 1).abs() * 12).floor()
    wanted = layer(values, mask)
    batch = ({0: torch.export.Dim.DYNAMIC},) * 2
    program = torch.export.export(layer, (values[:2], mask[:2]), dynamic_shapes=(batch,))
    torch.testing.assert_close(program.module()(values, mask), wanted)
    last = [bottom.to(memory_format=torch.channels_last) for bottom in (values, mask)]
    torch.testing.assert_close(layer(*last), wanted)
    assert layer(values[:0], mask[:0]).shape == (0, 2, 4, 6)
    layer.compile(backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(layer(values, mask), wanted)
