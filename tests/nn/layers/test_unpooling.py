"""Unpooling: each method by hand, and the way back from a Pooling."""

from __future__ import annotations

import pytest
import torch

from bpt.base.errors import RunError
from tests.support.one_layer import error_of, one_layer, shapes_of, tops_of

X = torch.tensor([[1.0, 2], [3, 4]]).view(1, 1, 2, 2)


def unpool(fields: str) -> list[list[float]]:
    top = one_layer(f'type: "Unpooling" unpooling_param {{ {fields} }}', X.shape)(X)
    rows: list[list[float]] = top[0, 0].tolist()
    return rows


def test_corners_tiles_and_means() -> None:
    assert unpool("kernel_size: 2 stride: 2 unpool_size: 4") == [[1, 0, 2, 0], [0] * 4, [3, 0, 4, 0], [0] * 4]
    assert unpool("unpool: TILE kernel_size: 2 unpool_size: 3") == [[1, 3, 2], [4, 10, 6], [3, 7, 4]]
    assert unpool("unpool: AVE kernel_h: 2 kernel_w: 1 stride_h: 2 stride_w: 1 unpool_h: 4 unpool_w: 2") == [
        [0.5, 1], [0.5, 1], [1.5, 2], [1.5, 2],
    ]  # fmt: skip


def test_the_way_back_from_a_pooling() -> None:
    x = torch.rand(2, 3, 6, 6, generator=torch.Generator().manual_seed(1))
    down = one_layer('type: "Pooling" pooling_param { kernel_size: 2 stride: 2 }', x.shape, tops=2)
    pooled, mask = tops_of(down, x)
    up = one_layer('type: "Unpooling" unpooling_param { kernel_size: 2 stride: 2 unpool_size: 6 }', *[(2, 3, 3, 3)] * 2)
    back = up(pooled, mask)
    largest = x == torch.nn.functional.interpolate(pooled, scale_factor=2)
    assert torch.equal(back, torch.where(largest, x, 0))


def test_sizes_and_refusals() -> None:
    body = 'type: "Unpooling" unpooling_param { kernel_size: 3 stride: 2 }'
    assert shapes_of(body, (1, 2, 4, 5)) == ((1, 2, 9, 11),)
    assert shapes_of('type: "Unpooling" unpooling_param { kernel_size: 1 stride: 2 }', (1, 2, 4, 5)) == ((1, 2, 9, 11),)
    assert error_of('type: "Unpooling" unpooling_param { kernel_size: 2 kernel_w: 3 }', (1, 1, 2, 2)) == (
        "give kernel_size, or kernel_h and kernel_w"
    )
    small = one_layer('type: "Unpooling" unpooling_param { kernel_size: 2 unpool_size: 2 }', *[(1, 1, 2, 2)] * 2)
    with pytest.raises(RunError, match=r"beyond a plane of \(2, 2\); .* as unpool_h and unpool_w"):
        small(X, torch.full((1, 1, 2, 2), 4.0))
