from __future__ import annotations

import pytest
import torch

from tests.nn.layers.refusals import check_refusal
from tests.support.gradient_checker import check_gradients
from tests.support.one_layer import flops_of, one_layer, shapes_of

Shape = tuple[int, ...]


def tile(settings: str) -> str:
    return f'type: "Tile" tile_param {{ {settings} }}'


@pytest.mark.parametrize("settings", ["tiles: 1", "tiles: 3", "axis: 0 tiles: 2", "axis: -1 tiles: 4"])
@pytest.mark.parametrize("shape", [(3, 2), (1, 3, 1, 2)])
def test_gradients(settings: str, shape: Shape) -> None:
    check_gradients(tile(settings), shape)


@pytest.mark.parametrize("axis", [0, 1, 2, -1])
def test_copies_stand_side_by_side(axis: int) -> None:
    x = torch.arange(24.0).reshape(2, 3, 4)
    layer = one_layer(tile(f"axis: {axis} tiles: 3"), (2, 3, 4))
    assert torch.equal(layer(x), torch.cat([x, x, x], axis))


def test_shapes_and_flops() -> None:
    assert shapes_of(tile("axis: 2 tiles: 5"), (2, 3, 4)) == ((2, 3, 20),)
    assert flops_of(tile("tiles: 5"), (2, 3, 4)) == 0


def test_refusals() -> None:
    for settings, given in (("axis: 1", "0"), ("axis: 1 tiles: 0", "0"), ("tiles: -2", "-2")):
        marked = settings.replace("tiles", "§tiles") if "tiles" in settings else settings
        field = "tile_param" if "tiles" in settings else "§tile_param"
        message = f"needs tiles, at least 1, not {given}"
        check_refusal(f'type: "Tile" top: "y" {field} {{ {marked} }}', message, a=(2, 3))
    check_refusal(
        'type: "Tile" top: "y" tile_param { §axis: 2 tiles: 2 }',
        'axis 2 is outside [-2, 2), the axes of bottom "a" (2, 3)',
        a=(2, 3),
    )
