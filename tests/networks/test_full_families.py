"""Well-known networks at full depth: they have their authors' numbers of parameters, and pass gradients to all that
learns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bpt
from tests.support.full_families import FAMILIES, text_of

PLACES = [(0.5, side) for side in (0.05, 0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.95)]
OBJECTS = [[0, 1, 0, *[at - side / 2] * 2, *[at + side / 2] * 2, 0] for at, side in (*PLACES, (0.25, 0.85))]
"""So that each head of a detector has one of its size at one of its places; the last is of heads of 2 × 2 places."""
REGIONS = [[0, 16 * place, 8 * place, 16 * place + 120, 8 * place + 90] for place in range(16)]
SMALL = {"DenseNet-121": 64, "DPN-92": 64, "Xception": 96}
"""Pictures of this side in place of the papers', where the whole ones take long."""
QUICK = ("ShuffleNet", "ShuffleNet 2", "MobileNet-SSD", "Pelee", "FaceBoxes")
CASES = [*SMALL.items(), *((name, None) for name in QUICK)]
SLOW = [pytest.param(name, None, marks=pytest.mark.slow) for name in FAMILIES if name not in QUICK]
BOUND = {"SegNet": 12, "ENet": 19}
"""Labels of pixels are below."""


def fill(net: bpt.Net, classes: int) -> None:
    random = np.random.default_rng(3)
    for name in net.inputs:
        data = net.blobs[name].data
        if name == "label" and data.shape == (1, 1, len(OBJECTS), 8):
            data[...] = np.reshape(OBJECTS, data.shape)
        elif name == "rois":
            data[...] = REGIONS
        elif name.startswith("label"):
            data[...] = random.integers(0, classes, data.shape)
        else:
            data[...] = random.normal(size=data.shape)


@pytest.mark.parametrize(("name", "side"), [*CASES, *SLOW])
def test_a_whole_net_passes_a_gradient_to_all_that_learns(name: str, side: int | None, tmp_path: Path) -> None:
    family = FAMILIES[name]
    if side is not None:
        family = family._replace(inputs=family.inputs | {"data": (2, 3, side, side)})
    path = tmp_path / "net.prototxt"
    path.write_text(text_of(family))
    net = bpt.Net(path, bpt.TRAIN)
    layers: list[Any] = [*net.layers]
    norms = {layer for layer, kind in zip(net._layer_names, layers, strict=True) if kind.type == "BatchNorm"}
    learns = {layer: params for layer, params in net.params.items() if layer not in norms}
    least, most = family.parameters
    assert least <= sum(param.data.size for params in learns.values() for param in params) <= most
    fill(net, BOUND.get(name, 21))
    net.forward()
    losses = [float(net.blobs[top].data) for top in net.outputs]
    assert losses and all(0 < loss < 10_000 for loss in losses), losses
    net.backward()
    for layer, params in learns.items():
        if not (name == "Fast R-CNN" and layer.startswith(("conv1_", "conv2_"))):  # which do not learn
            for index, param in enumerate(params):
                assert np.isfinite(param.diff).all() and param.diff.any(), (layer, index)
