"""Slices of parameters: all elements once, each in the memory of its parameter where that is one row."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from bpt.engine.optim.gradients import LearnableParam
from bpt.engine.optim.weight_slices import WeightSlice, WeightSlices


@pytest.mark.parametrize(
    ("elements", "places", "bounds"),
    [
        (10, [0, 1, 2], [(0, 4), (4, 7), (7, 10)]),
        (10, [0, 2, 1], [(0, 4), (7, 10), (4, 7)]),  # ranks of two hosts in turn
        (1, [0, 1], [(0, 1), (1, 1)]),
        (0, [0, 1], [(0, 0), (0, 0)]),
    ],
)
def test_ranks_have_all_elements_once(elements: int, places: list[int], bounds: list[tuple[int, int]]) -> None:
    parameter = nn.Parameter(torch.arange(float(elements)))
    for rank, (start, stop) in enumerate(bounds):
        own = WeightSlice(parameter, rank, places)
        assert (own.bounds, own.elements) == (bounds, (start, stop))
        assert own.value.tolist() == list(range(start, stop))


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_a_slice_follows_its_parameter(layout: torch.memory_format) -> None:
    """In row-major order, whatever the layout; an update of a row in memory is one of the parameter."""
    parameter = nn.Parameter(torch.arange(24.0).view(2, 3, 2, 2).contiguous(memory_format=layout))
    own = WeightSlice(parameter, 1, [0, 1])
    slices = WeightSlices([own])
    assert own.value.tolist() == list(range(12, 24))
    parameter.data += 1
    slices.read()
    assert own.value.tolist() == list(range(13, 25))
    own.value.data += 1
    assert (parameter[1, 0, 0, 0].item() == 14) == (layout == torch.contiguous_format)
    assert slices.of(parameter) is own and slices.of(nn.Parameter()) is None


def test_the_part_of_a_blob() -> None:
    blob, param = torch.arange(6.0).view(2, 3), LearnableParam("a/0", nn.Parameter(torch.zeros(2)), elements=(2, 4))
    assert param.own(blob).tolist() == [2, 3]
    assert param.own(torch.ones(2)).tolist() == [1, 1]  # it is the part already
    assert LearnableParam("a/0", nn.Parameter(torch.zeros(2, 3))).own(blob) is blob
