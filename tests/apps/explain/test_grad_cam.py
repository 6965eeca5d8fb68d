"""Grad-CAM against arithmetic by hand, and against a plain implementation."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from bpt.apps.explain.explained_layer import find_layer
from bpt.apps.explain.grad_cam import grad_cam, spread
from bpt.base.errors import RunError, UserError
from bpt.nn.net import Net
from tests.support.explain_nets import SOFTMAX, conv, explained, input_layer, made, pool, relu, scores, set_values

SHAPES = {1: (4,), 2: (2, 2), 3: (1, 2, 2)}  # four places on one, two and three axes


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_by_hand(tmp_path: Path, axes: int) -> None:
    """A = (2x, 1 - x) at four places; y = W mean(A), so that α_k = W[c, k] / 4."""
    shape = SHAPES[axes]
    net = explained(tmp_path, input_layer(1, 1, *shape), conv("c", "data", 2, 1), pool("c"), scores("pool", 2), SOFTMAX)
    core = made(net)
    set_values(core, "c", [2.0, -1.0], [0.0, 1.0])
    set_values(core, "ip", [1.0, 2.0, -1.0, 3.0], [0.5, -0.5])
    x = torch.tensor([-1.0, 0.0, 1.0, 2.0]).reshape(1, 1, *shape)
    layer = find_layer(net)
    assert layer.blob == "c"

    first = grad_cam(core, x, layer, net.scores, 0)
    torch.testing.assert_close(first.alpha, torch.tensor([0.25, 0.5]))
    torch.testing.assert_close(first.heat, torch.full(shape, 0.5))  # (2x + 2 (1 - x)) / 4
    second = grad_cam(core, x, layer, net.scores, 1)
    torch.testing.assert_close(second.alpha, torch.tensor([-0.25, 0.75]))
    # (-2x + 3 (1 - x)) / 4 = (3 - 5x) / 4, where it is positive.
    torch.testing.assert_close(second.heat, torch.tensor([2.0, 0.75, 0.0, 0.0]).reshape(shape))
    # mean(A) = (1, 0.5): y = (1 + 1 + 0.5, -1 + 1.5 - 0.5).
    torch.testing.assert_close(second.scores, torch.tensor([2.5, 0.0]))
    assert (first.best, second.best, second.chosen) == (0, 0, 1)
    assert grad_cam(core, x, layer, net.scores).chosen == 0


def test_gradients_that_differ_from_place_to_place_are_averaged(tmp_path: Path) -> None:
    """Without pooling y = Σ W[place] A[place] with W = (1, 2, 3, -2): α = 1, not W."""
    net = explained(tmp_path, input_layer(1, 1, 2, 2), conv("c", "data", 1, 1), scores("c", 1))
    core = made(net)
    set_values(core, "c", [1.0], [0.0])
    set_values(core, "ip", [1.0, 2.0, 3.0, -2.0], [0.0])
    x = torch.tensor([[[[1.0, 2.0], [-3.0, 4.0]]]])
    found = grad_cam(core, x, find_layer(net), net.scores)
    torch.testing.assert_close(found.alpha, torch.tensor([1.0]))
    torch.testing.assert_close(found.heat, torch.tensor([[1.0, 2.0], [0.0, 4.0]]))


CONVOLVE = {2: functional.conv2d, 3: functional.conv3d}


def plain(core: Net, x: Tensor, chosen: int) -> dict[str, Tensor]:
    """Maps of the residual net below by plain torch: blob → heat."""
    value = {name: blob.detach() for name, blob in core.values_by_name().items()}
    convolve = CONVOLVE[x.dim() - 2]
    a = convolve(x, value["a", 0], value["a", 1], padding=1).requires_grad_()
    kept = torch.relu(a)
    kept.retain_grad()
    b = convolve(kept, value["b", 0], value["b", 1], padding=1)
    total = kept + b
    total.retain_grad()
    y = total.flatten(2).mean(2) @ value["ip", 0].T + value["ip", 1]
    y[0, chosen].backward()
    heats = {}
    for name, maps in {"a": a, "rectified": kept, "sum": total}.items():
        assert maps.grad is not None
        alpha = maps.grad[0].flatten(1).mean(1)
        heats[name] = sum(weight * plane for weight, plane in zip(alpha, maps[0], strict=True)).clamp(min=0).detach()
    return heats


@pytest.mark.parametrize("axes", [2, 3])
def test_as_plain_torch(tmp_path: Path, axes: int) -> None:
    """With a layer in place, and a skip connection around the next one."""
    box = (5, 4, 6)[:axes]
    eltwise = 'layer { name: "sum" type: "Eltwise" bottom: "a" bottom: "b" top: "sum" }'
    net = explained(
        tmp_path, input_layer(1, 2, *box), conv("a", "data", 3, 3), relu("rectify", "a"), conv("b", "a", 3, 3), eltwise,
        pool("sum"), scores("pool", 3), SOFTMAX,
    )  # fmt: skip
    core = made(net)
    x = torch.randn(1, 2, *box, generator=torch.Generator().manual_seed(1))
    for chosen in range(3):
        heats = plain(core, x, chosen)
        # A layer's name means what this layer has made; a blob's, where no layer has it, the last version.
        for layer, key in {"a": "a", "rectify": "rectified", "": "sum", "sum": "sum"}.items():
            found = grad_cam(core, x, find_layer(net, layer), net.scores, chosen)
            assert found.heat.max() > 0
            torch.testing.assert_close(found.heat, heats[key])
    assert all(value.grad is None for value in core.parameters())


def test_what_cannot_be_explained(tmp_path: Path) -> None:
    net = explained(tmp_path, input_layer(1, 1, 2, 2), conv("c", "data", 1, 1), pool("c"), scores("pool", 2), SOFTMAX)
    core, layer, x = made(net), find_layer(net), torch.ones(1, 1, 2, 2)
    for chosen in (-1, 2):
        with pytest.raises(UserError, match=f"there is no class {chosen}; the net has 2, from 0 to 1"):
            grad_cam(core, x, layer, net.scores, chosen)
    set_values(core, "c", [float("inf")], [0.0])
    with pytest.raises(RunError, match='blob "ip": the class scores are not finite'):
        grad_cam(core, x, layer, net.scores)


def interpolated(heat: np.ndarray, box: tuple[int, ...], place: tuple[float, ...]) -> float:
    """The value of ``heat`` at a place in the net's voxels: a weighted sum over all cells, by tent functions."""
    total = 0.0
    for cell in np.ndindex(*heat.shape):
        weight = 1.0
        for i, k, n, at in zip(cell, heat.shape, box, place, strict=True):
            centres = (np.arange(k) + 0.5) * n / k - 0.5
            at = min(max(at, centres[0]), centres[-1])
            weight *= max(0.0, 1 - abs(at - centres[i]) * k / n)
        total += weight * heat[cell]
    return total


@pytest.mark.parametrize(("cells", "box", "grid"), [((3,), (7,), (5,)), ((2, 3), (4, 3), (5, 9)), ((2, 1, 3),) * 3,
                                                    ((2, 3, 1), (8, 8, 4), (6, 5, 3))])  # fmt: skip
def test_spread(cells: tuple[int, ...], box: tuple[int, ...], grid: tuple[int, ...]) -> None:
    heat = np.random.default_rng(1).random(cells)
    positions = [np.linspace(0, n - 1, m) for n, m in zip(box, grid, strict=True)]
    wide = np.array(
        [interpolated(heat, box, tuple(p[i] for p, i in zip(positions, index, strict=True)))
         for index in np.ndindex(*grid)]
    ).reshape(grid)  # fmt: skip
    found = spread(torch.from_numpy(heat), box, positions)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, wide / wide.max(), rtol=1e-6, atol=1e-7)
    assert found.max() == 1


def test_spread_over_pixels_is_torchs_interpolation() -> None:
    heat = torch.rand(3, 4, 2, generator=torch.Generator().manual_seed(2))
    grid, box = (7, 6, 8), (12, 8, 6)
    positions = [(np.arange(m) + 0.5) * n / m - 0.5 for m, n in zip(grid, box, strict=True)]
    wide = functional.interpolate(heat[None, None], grid, mode="trilinear", align_corners=False)[0, 0]
    np.testing.assert_allclose(spread(heat, box, positions), (wide / wide.max()).numpy(), rtol=1e-5, atol=1e-6)


def test_spread_is_nothing_where_the_net_has_not_looked() -> None:
    """Of ten places the net has seen the six in the middle, three pixels of it, from border to border."""
    at = (np.arange(10) - 2 + 0.5) / 6 * 3 - 0.5
    found = spread(torch.ones(3), (3,), [at])
    assert found.tolist() == [0, 0, 1, 1, 1, 1, 1, 1, 0, 0]


def test_spread_of_nothing_is_nothing() -> None:
    found = spread(torch.zeros(2, 2), (4, 4), [np.arange(4.0)] * 2)
    np.testing.assert_array_equal(found, np.zeros((4, 4), np.float32))
