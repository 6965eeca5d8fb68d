from __future__ import annotations

import torch

from tests.nn.layers.refusals import check_refusal
from tests.support.one_layer import one_layer, one_layer_graph


def test_it_makes_nothing() -> None:
    assert one_layer('type: "Silence"', (2, 3), (4,), tops=0)(torch.rand(2, 3), torch.rand(4)) == ()


def test_flops() -> None:
    assert one_layer_graph('type: "Silence"', (2, 3), tops=0).flops == 0


def test_refusals() -> None:
    check_refusal('type: "Silence" §top: "y"', "Silence takes 0 tops, given 1 (y)", a=(2, 3))
