from __future__ import annotations

import pytest
import torch

from bpt.errors import LayerError
from tests.golden_cases import graph_of
from tests.one_layer import one_layer


@pytest.mark.parametrize(("settings", "expected"), [("", [0.0, 0, 1, 1]), ("threshold: 1", [0.0, 0, 0, 1])])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_equal_is_not_above(settings: str, expected: list[float], dtype: torch.dtype) -> None:
    x = torch.tensor([-1.0, 0, 1, 2], dtype=dtype, requires_grad=True)
    top = one_layer(f'type: "Threshold" threshold_param {{ {settings} }}', (4,))(x)
    assert torch.equal(top, torch.tensor(expected, dtype=dtype))
    assert not top.requires_grad


def test_training_through_it_is_refused() -> None:
    net = """
        layer { name: "in" type: "Input" top: "x" input_param { shape { dim: 2 dim: 3 } } }
        layer { name: "ip" type: "InnerProduct" bottom: "x" top: "a" inner_product_param { num_output: 3 } }
        layer { name: "L" type: "Threshold" bottom: "a" top: "y" }
        layer { name: "loss" type: "Reduction" bottom: "y" top: "loss" loss_weight: 1 }"""
    with pytest.raises(LayerError, match=r'^layer "L": Threshold cannot give bottom "a" a diff'):
        graph_of(net)
