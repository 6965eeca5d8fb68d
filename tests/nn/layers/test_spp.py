"""SPP: bins by hand and one at a time, and grids that do not fit."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from math import ceil, prod

import pytest
import torch
from torch import Tensor

from bpt.config.proto import bpt_pb2 as pb
from bpt.nn.pass_context import CurrentPass, PassContext
from tests.support.gradient_checker import check_gradients, spaced
from tests.support.one_layer import one_layer, shapes_of


def body(settings: str) -> str:
    return f'type: "SPP" spp_param {{ {settings} }}'


def test_by_hand() -> None:
    x = torch.tensor([[1.0, 2, 3, 4], [5, 6, 7, 8], [9, 10, 11, 12], [16, 15, 14, 13]])
    both = torch.stack([x, -x])[None]
    top = one_layer(body("pyramid_height: 2"), (1, 2, 4, 4))(both)
    assert top.tolist() == [[16, -1, 6, 8, 16, 14, -1, -3, -9, -11]]
    top = one_layer(body("pyramid_height: 2 pool: AVE"), (1, 2, 4, 4))(both)
    assert top.tolist() == [[8.5, -8.5, 3.5, 5.5, 12.5, 12.5, -3.5, -5.5, -12.5, -12.5]]


def slow_pyramid(x: Tensor, height: int, average: bool) -> Tensor:
    """Bin by bin: ``ceil(size / bins)`` elements an axis, with the pad in front that Caffe gives."""
    tops = []
    for bins in (2**grid for grid in range(height)):
        kernel = [ceil(size / bins) for size in x.shape[2:]]
        pad = [(k * bins - size + 1) // 2 for k, size in zip(kernel, x.shape[2:], strict=True)]
        for n, channel in product(range(x.shape[0]), range(x.shape[1])):
            for place in product(range(bins), repeat=x.dim() - 2):
                first = [p * k - q for p, k, q in zip(place, kernel, pad, strict=True)]
                last = [min(f + k, s + q) for f, k, s, q in zip(first, kernel, x.shape[2:], pad, strict=True)]
                size = prod(b - a for a, b in zip(first, last, strict=True))
                inside = x[n, channel][tuple(slice(max(0, a), b) for a, b in zip(first, last, strict=True))]
                tops.append((bins, n, inside.sum() / size if average else inside.max()))
    grids = [[top for bins, n, top in tops if n == sample] for sample in range(x.shape[0])]
    return torch.stack([torch.stack(values) for values in grids])


@pytest.mark.parametrize("pool", ["MAX", "AVE"])
@pytest.mark.parametrize(
    ("shape", "height"),
    [((2, 3, 5, 6), 2), ((2, 2, 9, 7), 3), ((1, 2, 7), 3), ((2, 1, 4, 3, 5), 2), ((1, 1, 8, 15), 4)],
)
def test_is_the_definition(shape: tuple[int, ...], height: int, pool: str) -> None:
    x = spaced(shape)
    settings = body(f"pyramid_height: {height} pool: {pool} engine: CUDNN")
    wanted = slow_pyramid(x, height, pool == "AVE")
    assert shapes_of(settings, shape) == (tuple(wanted.shape),)
    torch.testing.assert_close(one_layer(settings, shape)(x), wanted)
    check_gradients(settings, shape)


def test_one_grid_keeps_its_axes() -> None:
    x = spaced((2, 3, 5, 4))
    top = one_layer(body("pyramid_height: 1"), (2, 3, 5, 4))(x)
    assert torch.equal(top, x.amax((2, 3), keepdim=True))
    assert shapes_of(body("pyramid_height: 1"), (2, 3, 5)) == ((2, 3, 1),)


def test_random_picks() -> None:
    settings, shape = body("pyramid_height: 2 pool: STOCHASTIC"), (3, 2, 4, 6)
    x = torch.rand(shape, generator=torch.Generator().manual_seed(1)) + 0.1
    layer = one_layer(settings, shape, context=PassContext(seed=3))
    top = layer(x)
    assert torch.equal(top, layer(x))  # the numbers belong to the pass
    for sample in range(3):
        assert torch.isin(top[sample, :2], x[sample].flatten()).all()
        assert torch.isin(top[sample, 2], x[sample, 0, :2, :3].flatten())
    layer.follow(CurrentPass(replace(layer.context, iteration=1)))
    assert not torch.equal(top, layer(x))
    tested = one_layer(settings, shape, phase=pb.TEST)(x)
    torch.testing.assert_close(tested[:, 0], x[:, 0].square().sum((1, 2)) / x[:, 0].sum((1, 2)))
    check_gradients(settings, x)


def test_mixes_no_samples() -> None:
    layer = one_layer(body("pyramid_height: 2"), (4, 3, 3, 3))
    assert layer.mixes_samples(layer.spec, [(4, 3, 3, 3)]) == ""
