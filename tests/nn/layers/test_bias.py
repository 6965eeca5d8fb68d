from __future__ import annotations

import pytest

from tests.support.gradient_checker import check_gradients
from tests.support.one_layer import error_of, flops_of, one_layer, one_layer_graph

Shape = tuple[int, ...]


def bias(settings: str = "") -> str:
    return f'type: "Bias" bias_param {{ {settings} }}'


@pytest.mark.parametrize(
    ("settings", "bottoms"),
    [
        ("", [(2, 3, 2)]),
        ("num_axes: -1", [(2, 3, 2)]),
        ("num_axes: 0", [(2, 3, 2)]),
        ("axis: -1", [(2, 3, 4)]),
        ("axis: 0", [(2, 3, 2), (2, 3)]),
        ("", [(2, 3, 2), ()]),
    ],
)
def test_gradients(settings: str, bottoms: list[Shape]) -> None:
    check_gradients(bias(settings), *bottoms)


def test_blobs() -> None:
    assert [param.shape for param in one_layer_graph(bias("num_axes: 2"), (2, 3, 4)).params] == [(3, 4)]
    assert one_layer_graph(bias(), (2, 3, 4), (3,)).params == ()
    assert one_layer(bias(), (1, 2)).blobs[0].tolist() == [0, 0]
    assert one_layer(bias("filler { value: 3 }"), (1, 2)).blobs[0].tolist() == [3, 3]


def test_flops() -> None:
    assert flops_of(bias(), (2, 3, 4)) == 24


@pytest.mark.parametrize(
    ("settings", "bottoms", "message"),
    [
        ("", [(2, 3), (2,)], 'bottom "x1" of shape (2,) does not fit bottom "x0" of shape (2, 3) from axis 1 on'),
        ("num_axes: -3", [(2, 3)], "num_axes must be at least 0, or -1 for all from axis on; not -3"),
        ("axis: 1 num_axes: 2", [(2, 3)], "num_axes 2 from axis 1 on reaches over the end of a bottom of shape (2, 3)"),
        ("axis: -3", [(2, 3)], 'axis -3 is outside [-2, 2), the axes of bottom "x0" (2, 3)'),
    ],
)
def test_errors(settings: str, bottoms: list[Shape], message: str) -> None:
    assert error_of(bias(settings), *bottoms) == message
