from __future__ import annotations

import torch

from tests.nn.layers.refusals import check_refusal
from tests.support.one_layer import flops_of, one_layer, shapes_of


def test_channels_last_is_flattened_in_logical_order() -> None:
    x = torch.arange(24.0).reshape(1, 2, 3, 4)
    layer = one_layer('type: "Flatten"', (1, 2, 3, 4))
    assert torch.equal(layer(x.to(memory_format=torch.channels_last)), torch.arange(24.0).reshape(1, 24))


def test_one_axis_stays_as_it_is() -> None:
    assert shapes_of('type: "Flatten" flatten_param { axis: 1 end_axis: 1 }', (2, 3, 4)) == ((2, 3, 4),)


def test_a_vector() -> None:
    assert shapes_of('type: "Flatten" flatten_param { axis: 0 }', (5,)) == ((5,),)


def test_copying_costs_no_flops() -> None:
    assert flops_of('type: "Flatten"', (2, 3, 4)) == 0


def test_refusals() -> None:
    check_refusal(
        'type: "Flatten" top: "y" flatten_param { §axis: 3 }',
        'axis 3 is outside [-3, 3), the axes of bottom "a" (2, 3, 4)',
        a=(2, 3, 4),
    )
    check_refusal(
        'type: "Flatten" top: "y" flatten_param { axis: 0 §end_axis: -4 }',
        'end_axis -4 is outside [-3, 3), the axes of bottom "a" (2, 3, 4)',
        a=(2, 3, 4),
    )
    check_refusal(
        'type: "Flatten" top: "y" flatten_param { axis: 2 §end_axis: 1 }',
        'end_axis 1 is before axis 2 of bottom "a" (2, 3, 4)',
        a=(2, 3, 4),
    )
