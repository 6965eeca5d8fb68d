from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import pytest
import torch
from torch import Tensor

from bpt.config.proto import bpt_pb2 as pb
from bpt.nn.pass_context import CurrentPass, PassContext
from tests.support.gradient_checker import spaced
from tests.support.one_layer import gradient_of, one_layer, shapes_of, tops_of

FLT_MAX = torch.finfo(torch.float32).max


def pool(settings: str) -> str:
    return f'type: "Pooling" pooling_param {{ {settings} }}'


OPTIONS = {
    "1-D": ("kernel_size: 3 stride: 2", (2, 2, 8), (3,), (2,), (0,)),
    "1-D pad": ("kernel_size: 3 stride: 2 pad: 1", (2, 2, 7), (3,), (2,), (1,)),
    "2-D": ("kernel_size: 3 stride: 2", (2, 1, 6, 7), (3, 3), (2, 2), (0, 0)),
    "2-D pad over half": ("kernel_size: 3 stride: 2 pad: 2", (1, 2, 5, 6), (3, 3), (2, 2), (2, 2)),
    "2-D sides": (
        "kernel_h: 4 kernel_w: 2 pad_h: 3 pad_w: 0 stride_h: 3 stride_w: 3",
        (1, 1, 7, 8),
        (4, 2),
        (3, 3),
        (3, 0),
    ),
    "2-D bigger than the bottom": ("kernel_size: 7 stride: 4", (1, 2, 5, 4), (7, 7), (4, 4), (0, 0)),
    "3-D": ("kernel_size: 2 stride: 2", (1, 2, 3, 4, 5), (2, 2, 2), (2, 2, 2), (0, 0, 0)),
    "3-D pad": ("kernel_size: 3 stride: 2 pad: 2", (1, 1, 4, 3, 2), (3, 3, 3), (2, 2, 2), (2, 2, 2)),
    # torch's avg_pool3d takes no kernel larger than the bottom, not even with a pad.
    "3-D bigger than the bottom with pad": ("kernel_size: 2 pad: 1", (2, 1, 1, 1, 3), (2,) * 3, (1,) * 3, (1,) * 3),
    "3-D bigger than the bottom": ("kernel_size: 4 stride: 3", (2, 2, 2, 3, 5), (4,) * 3, (3,) * 3, (0,) * 3),
    "3-D bigger than both pads": ("kernel_size: 6 stride: 4 pad: 1", (1, 2, 2, 3, 7), (6,) * 3, (4,) * 3, (1,) * 3),
}
every_option = pytest.mark.parametrize(("settings", "shape", "kernel", "stride", "pad"), OPTIONS.values(), ids=OPTIONS)


Axes = tuple[int, ...]


def caffes_windows(
    sizes: Axes, kernel: Axes, stride: Axes, pad: Axes
) -> Iterator[tuple[Axes, list[int], list[int], int]]:
    """The loops of Caffe's pooling_layer.cpp, for any number of axes.

    Yields (place, starts, ends, size): the elements [start, end) inside the bottom of each axis, and the
    window's size up to the far pad.
    """
    places = []
    for size, k, s, p in zip(sizes, kernel, stride, pad, strict=True):
        number = -((k - size - 2 * p) // s) + 1
        if any(pad) and (number - 1) * s >= size + p:
            number -= 1
        places.append(number)
    for place in product(*map(range, places)):
        starts, ends, window = [], [], 1
        for at, size, k, s, p in zip(place, sizes, kernel, stride, pad, strict=True):
            start = at * s - p
            end = min(start + k, size + p)
            window *= end - start
            starts.append(max(start, 0))
            ends.append(min(end, size))
        yield place, starts, ends, window


def slow_pool(x: Tensor, kernel: Axes, stride: Axes, pad: Axes) -> tuple[Tensor, Tensor, Tensor]:
    """Maxima, their flat places and averages."""
    sizes = x.shape[2:]
    windows = list(caffes_windows(sizes, kernel, stride, pad))
    shape = (*x.shape[:2], *(last + 1 for last in windows[-1][0]))
    maxima, places, averages = (torch.zeros(shape, dtype=x.dtype) for _ in range(3))
    strides = torch.zeros(sizes).stride()
    for n, c in product(range(x.shape[0]), range(x.shape[1])):
        for place, starts, ends, size in windows:
            best, best_at, total = -FLT_MAX, -1, 0.0
            for at in product(*(range(a, b) for a, b in zip(starts, ends, strict=True))):
                source = (n, c, *at)
                value = x[source].item()
                total += value
                if value > best:
                    best, best_at = value, sum(a * b for a, b in zip(at, strides, strict=True))
            target = (n, c, *place)
            maxima[target], places[target] = best, best_at
            averages[target] = total / size if size > 0 else 0
    return maxima, places, averages


@every_option
def test_is_caffes_loop(settings: str, shape: Axes, kernel: Axes, stride: Axes, pad: Axes) -> None:
    x = spaced(shape).float()
    maxima, places, averages = slow_pool(x, kernel, stride, pad)
    assert shapes_of(pool(settings), shape) == (tuple(maxima.shape),)
    top, mask = tops_of(one_layer(pool(settings), shape, tops=2), x)
    assert torch.equal(top, maxima)
    assert torch.equal(mask, places)
    torch.testing.assert_close(one_layer(pool(f"pool: AVE {settings}"), shape)(x), averages)


def test_averages_without_the_pad() -> None:
    # Of Intel's Caffe: what lies on the bottom counts alone. Windows of 2 at -1, 1 and 3 of 4 pixels and pads of 1.
    x = torch.tensor([[[1.0, 2, 4, 8]]])
    settings = "pool: AVE kernel_size: 2 stride: 2 pad: 1"
    assert one_layer(pool(settings), (1, 1, 4))(x).tolist() == [[[0.5, 3, 4]]]
    assert one_layer(pool(f"{settings} avg_include_pad: false"), (1, 1, 4))(x).tolist() == [[[1, 3, 8]]]
    assert one_layer(pool(f"{settings} avg_include_pad: true"), (1, 1, 4))(x).tolist() == [[[0.5, 3, 4]]]


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_the_first_of_equal_maxima_counts(layout: torch.memory_format) -> None:
    x = torch.zeros(2, 3, 4, 5).contiguous(memory_format=layout).requires_grad_()
    layer = one_layer(pool("kernel_size: 2 stride: 2"), tuple(x.shape), tops=2)
    top, mask = tops_of(layer, x)
    top.sum().backward()
    assert torch.equal(mask, torch.tensor([[0.0, 2, 4], [10, 12, 14]]).expand(2, 3, 2, 3))
    wanted = torch.zeros(4, 5)
    wanted[::2, ::2] = 1
    assert torch.equal(gradient_of(x), wanted.expand(2, 3, 4, 5))


@pytest.mark.parametrize(("method", "empty"), [("MAX", -FLT_MAX), ("AVE", 0.0)])
def test_a_window_without_elements(method: str, empty: float) -> None:
    # Width 9, kernel 2, stride 3: ceil(7 / 3) + 1 = 4 windows, at 0, 3, 6 and 9; the last is outside.
    x = torch.arange(9.0).reshape(1, 1, 1, 9).requires_grad_()
    top = one_layer(pool(f"pool: {method} kernel_h: 1 kernel_w: 2 stride_h: 1 stride_w: 3"), (1, 1, 1, 9))(x)
    assert torch.equal(top[0, 0, 0, 3:], torch.tensor([empty]))
    top.sum().backward()
    share = 1.0 if method == "MAX" else 0.5
    first = 0.0 if method == "MAX" else 0.5
    assert torch.equal(gradient_of(x).flatten(), torch.tensor([first, share, 0] * 3))


def test_a_window_without_elements_has_no_place() -> None:
    layer = one_layer(pool("kernel_size: 2 stride: 3"), (1, 1, 9, 3), tops=2)
    top, mask = tops_of(layer, torch.arange(27.0).reshape(1, 1, 9, 3))
    assert torch.equal(mask.flatten(), torch.tensor([4.0, -1, 13, -1, 22, -1, -1, -1]))
    assert torch.equal(top.flatten(), torch.tensor([4.0, -FLT_MAX, 13, -FLT_MAX, 22, -FLT_MAX, -FLT_MAX, -FLT_MAX]))


def test_stochastic_picks_in_proportion() -> None:
    # A window of 1, 2, 3, 4 sums to 10: over 4000 of them each must come up about 400, 800, 1200, 1600 times.
    x = torch.tensor([[1.0, 2], [3, 4]]).expand(1, 4000, 2, 2).clone().requires_grad_()
    layer = one_layer(pool("pool: STOCHASTIC kernel_size: 2"), tuple(x.shape), context=PassContext(seed=3))
    top = layer(x)
    picked = torch.bincount(top.detach().flatten().long(), minlength=5)[1:]
    # The standard deviation of a count is at most sqrt(4000 · 0.4 · 0.6) = 31; five of them are 155.
    assert ((picked - torch.tensor([400, 800, 1200, 1600])).abs() < 155).all()
    top.sum().backward()
    assert torch.equal(gradient_of(x), (x == top).float())


def test_stochastic_pick_is_new_in_each_pass() -> None:
    context = PassContext(seed=3)
    x = torch.rand(1, 8, 6, 6)
    layer = one_layer(pool("pool: STOCHASTIC kernel_size: 3 stride: 2"), tuple(x.shape), context=context)
    first = layer(x)
    assert torch.equal(layer(x), first)
    layer.follow(CurrentPass(replace(context, iteration=1)))
    assert not torch.equal(layer(x), first)


def test_stochastic_of_zeros_is_zero() -> None:
    for phase in (pb.TRAIN, pb.TEST):
        layer = one_layer(pool("pool: STOCHASTIC kernel_size: 2"), (1, 1, 2, 2), phase=phase)
        assert torch.equal(layer(torch.zeros(1, 1, 2, 2)), torch.zeros(1, 1, 1, 1))


def test_stochastic_averages_when_testing() -> None:
    # Windows of width 2 over 1, 2, 3, the last one cut off: (1 + 4) / 3 and 9 / 3.
    body = pool("pool: STOCHASTIC kernel_size: 2 stride: 2")
    layer = one_layer(body, (1, 1, 1, 3), phase=pb.TEST)
    torch.testing.assert_close(layer(torch.tensor([[[[1.0, 2, 3]]]])), torch.tensor([[[[5 / 3, 3]]]]))


def test_global_pooling_follows_the_bottom() -> None:
    layer = one_layer(pool("pool: AVE global_pooling: true"), (1, 1, 2, 2))
    assert torch.equal(layer(torch.arange(6.0).reshape(1, 1, 2, 3)), torch.tensor([[[[2.5]]]]))
