"""Interp: the sizes of the fork that it comes from, values by hand, and one pixel at a time."""

from __future__ import annotations

from itertools import product
from math import floor

import pytest
import torch
from torch import Tensor

from tests.support.gradient_checker import spaced
from tests.support.one_layer import error_of, one_layer, shapes_of

Shape = tuple[int, ...]


def body(settings: str = "") -> str:
    return f'type: "Interp" interp_param {{ {settings} }}'


def test_by_hand() -> None:
    x = torch.tensor([[0.0, 4], [8, 12]])[None, None]
    top = one_layer(body("height: 3 width: 5"), (1, 1, 2, 2))(x)
    assert top.squeeze().tolist() == [[0, 1, 2, 3, 4], [4, 5, 6, 7, 8], [8, 9, 10, 11, 12]]
    top = one_layer(body("height: 1 width: 1"), (1, 1, 2, 2))(x)
    assert top.squeeze().tolist() == 0  # one pixel is the first
    top = one_layer(body("height: 2 width: 2 pad_beg: -1"), (1, 1, 2, 2))(x)
    assert top.squeeze().tolist() == [[12, 12], [12, 12]]


def slow_interpolation(x: Tensor, height: int, width: int) -> Tensor:
    """The corners lie on the corners; between four pixels values are weighted by nearness."""
    y = torch.zeros(*x.shape[:2], height, width, dtype=x.dtype)
    steps = [
        (have - 1) / (want - 1) if want > 1 else 0 for have, want in zip(x.shape[2:], (height, width), strict=True)
    ]
    for i, j in product(range(height), range(width)):
        row, column = i * steps[0], j * steps[1]
        for r, c in product((floor(row), floor(row) + 1), (floor(column), floor(column) + 1)):
            weight = (1 - abs(row - r)) * (1 - abs(column - c))
            if weight > 0 and r < x.shape[2] and c < x.shape[3]:
                y[:, :, i, j] += weight * x[:, :, r, c]
    return y


@pytest.mark.parametrize(
    ("settings", "sizes"),
    [
        ("height: 4 width: 11", (4, 11)),
        ("height: 9 width: 3", (9, 3)),
        ("zoom_factor: 2", (13, 11)),
        ("zoom_factor: 1", (7, 6)),
        ("shrink_factor: 2", (4, 3)),
        ("shrink_factor: 3 zoom_factor: 4", (9, 5)),
        ("zoom_factor: 3 pad_beg: -1 pad_end: -2", (10, 7)),
        ("height: 5 width: 5 pad_end: -3 zoom_factor: 1", None),
        ("height: 5 width: 5 pad_end: -3", (5, 5)),
    ],
)
def test_is_the_definition(settings: str, sizes: Shape | None) -> None:
    shape = (2, 3, 7, 6)
    if sizes is None:
        assert error_of(body(settings), shape) == (
            "has several sizes for its top; give one of height and width, zoom_factor and/or shrink_factor, or a "
            "second bottom of the wanted size"
        )
        return
    assert shapes_of(body(settings), shape) == ((2, 3, *sizes),)
    x = spaced(shape)
    cut = x[:, :, 1:5, 1:4] if "pad_beg" in settings else x[:, :, :4, :3] if "pad_end" in settings else x
    torch.testing.assert_close(one_layer(body(settings), shape)(x), slow_interpolation(cut, *sizes))


def test_a_second_bottom_tells_the_size() -> None:
    x = spaced((2, 3, 3, 4)).requires_grad_()
    layer = one_layer(body("pad_beg: -1"), (2, 3, 3, 4), (2, 1, 6, 5))
    top = layer(x, torch.zeros(2, 1, 6, 5))
    torch.testing.assert_close(top, slow_interpolation(x[:, :, 1:, 1:], 6, 5))
    assert layer.mixes_samples(layer.spec, [(2, 3, 3, 4), (2, 1, 6, 5)]) == ""


WAYS = "height and width, zoom_factor and/or shrink_factor, or a second bottom of the wanted size"


@pytest.mark.parametrize(
    ("settings", "shapes", "message"),
    [
        ("", [(1, 2, 3, 3)], f"needs {WAYS}"),
        ("height: 3 width: 3 zoom_factor: 2", [(1, 2, 3, 3)], f"has several sizes for its top; give one of {WAYS}"),
        ("zoom_factor: 2", [(1, 2, 3, 3), (1, 2, 4, 4)], f"has several sizes for its top; give one of {WAYS}"),
        ("height: 3", [(1, 2, 3, 3)], "height is given alone; height and width go together (no width)"),
        ("width: 3", [(1, 2, 3, 3)], "width is given alone; height and width go together (no height)"),
        ("height: -1 width: 3", [(1, 2, 3, 3)], "height must be at least 1, not -1"),
        ("zoom_factor: 0", [(1, 2, 3, 3)], "zoom_factor must be at least 1, not 0"),
        ("shrink_factor: -2", [(1, 2, 3, 3)], "shrink_factor must be at least 1, not -2"),
        ("zoom_factor: 2 pad_beg: 1", [(1, 2, 3, 3)], "pad_beg must be 0, or negative to cut off, not 1"),
        (
            "zoom_factor: 2 pad_beg: -1 pad_end: -2",
            [(1, 2, 4, 3)],
            "pad_beg -1 and pad_end -2 leave nothing of a bottom of shape (1, 2, 4, 3)",
        ),
        ("zoom_factor: 2", [(1, 2, 4)], 'needs bottoms (N, channels, H, W): "x0" (1, 2, 4)'),
        ("", [(1, 2, 4, 4), (1, 2, 0, 3)], 'the top would have no elements: "x0" (1, 2, 4, 4) and "x1" (1, 2, 0, 3)'),
    ],
)
def test_errors(settings: str, shapes: list[Shape], message: str) -> None:
    assert error_of(body(settings), *shapes) == message
