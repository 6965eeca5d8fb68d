"""Crop: offsets by hand, and every way to reach beyond a bottom."""

from __future__ import annotations

import pytest
import torch

from bpt.nn.net import Net
from tests.support.golden_cases import graph_of
from tests.support.gradient_checker import spaced
from tests.support.one_layer import gradient_of, one_layer


def body(settings: str = "") -> str:
    return f'type: "Crop" crop_param {{ {settings} }}'


@pytest.mark.parametrize(
    ("settings", "size", "cut"),
    [
        ("", (9, 9, 2, 3), (slice(None), slice(None), slice(0, 2), slice(0, 3))),
        ("offset: 1", (9, 9, 2, 3), (slice(None), slice(None), slice(1, 3), slice(1, 4))),
        ("offset: 2 offset: 0", (2, 3, 2, 3), (slice(None), slice(None), slice(2, 4), slice(0, 3))),
        ("axis: 1 offset: 1 offset: 0 offset: 2", (2, 2, 4, 3), (slice(None), slice(1, 3), slice(0, 4), slice(2, 5))),
        ("axis: -1 offset: 4", (2, 3, 9, 1), (slice(None), slice(None), slice(None), slice(4, 5))),
        ("axis: 0 offset: 0", (1, 1, 1, 1), (slice(0, 1),) * 4),
        ("axis: 3", (2, 3, 4, 0), (slice(None), slice(None), slice(None), slice(0, 0))),
    ],
)
def test_cuts(settings: str, size: tuple[int, ...], cut: tuple[slice, ...]) -> None:
    shape = (2, 3, 4, 5)
    x = spaced(shape).requires_grad_()
    reference = torch.zeros(size, dtype=torch.float64)
    top = one_layer(body(settings), shape, size)(x, reference)
    assert torch.equal(top, x[cut])
    (diff,) = torch.autograd.grad(top.sum(), x)
    wanted = torch.zeros(shape, dtype=torch.float64)
    wanted[cut] = 1
    assert torch.equal(diff, wanted)


def test_other_numbers_of_axes() -> None:
    x = torch.arange(6.0).reshape(1, 6)
    assert one_layer(body("axis: 1 offset: 3"), (1, 6), (5, 2))(x, torch.zeros(5, 2)).tolist() == [[3, 4]]


def test_mixes_samples() -> None:
    for settings, size, reason in [
        ("", (4, 1, 2), ""),
        ("axis: 0", (4, 1, 2), ""),
        ("axis: 0", (3, 1, 2), "it cuts along axis 0, the samples"),
        ("", (3, 1, 2), 'bottom "x1" (3, 1, 2) has another axis 0 than "x0" (4, 3, 2)'),
    ]:
        layer = one_layer(body(settings), (4, 3, 2), size)
        assert layer.mixes_samples(layer.spec, [(4, 3, 2), size]) == reason


def test_the_reference_may_be_learnt_too() -> None:
    # FCN-16s crops one score map to the size of another one, which goes on from there.
    net = Net(
        graph_of("""
        layer { name: "in" type: "Input" top: "data" input_param { shape { dim: 1 dim: 1 dim: 3 dim: 3 } } }
        layer { name: "wide" type: "Convolution" bottom: "data" top: "wide"
                convolution_param { num_output: 1 kernel_size: 1 pad: 2 weight_filler { value: 2 } } }
        layer { name: "narrow" type: "Convolution" bottom: "data" top: "narrow"
                convolution_param { num_output: 1 kernel_size: 1 weight_filler { value: 3 } } }
        layer { name: "crop" type: "Crop" bottom: "wide" bottom: "narrow" top: "cut" crop_param { offset: 2 } }
        layer { name: "sum" type: "Eltwise" bottom: "cut" bottom: "narrow" top: "sum" loss_weight: 1 }""")
    )
    data = torch.arange(9.0).reshape(1, 1, 3, 3)
    top = net(data)
    assert torch.equal(top, 5 * data)
    top.sum().backward()
    assert [float(gradient_of(parameter).sum()) for parameter in net.parameters()] == [36, 9, 36, 9]


def test_is_traced_and_takes_no_samples() -> None:
    layer = one_layer(body("offset: 1"), (3, 2, 4, 4), (3, 2, 2, 3))
    x, size = spaced((3, 2, 4, 4)), torch.zeros(3, 2, 2, 3)
    batch = ({0: torch.export.Dim.DYNAMIC},) * 2
    program = torch.export.export(layer, (x[:2], size[:2]), dynamic_shapes=(batch,))
    torch.testing.assert_close(program.module()(x, size), x[:, :, 1:3, 1:4])
    assert layer(x[:0], size[:0]).shape == (0, 2, 2, 3)
