"""Channels side by side: strides worked out by hand, and which blobs are told to lie so."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from bpt.nn.kernels.channels_last import FORMATS, channels_last, format_of, is_channels_last, places


def blob(*shape: int) -> Tensor:
    return torch.arange(float(torch.Size(shape).numel())).view(shape)


@pytest.mark.parametrize(
    ("shape", "strides"),
    [
        ((2, 3, 4, 5), (60, 1, 15, 3)),
        ((2, 1, 4, 5), (20, 1, 5, 1)),
        ((2, 3, 4, 5, 6), (360, 1, 90, 18, 3)),
        ((2, 1, 4, 5, 6), (120, 1, 30, 6, 1)),
        ((2, 1, 1, 5, 1), (5, 1, 5, 1, 1)),
    ],
)
def test_strides(shape: tuple[int, ...], strides: tuple[int, ...]) -> None:
    x = blob(*shape)
    for given in (x, channels_last(x), x.repeat_interleave(2, 2)[:, :, ::2]):
        ours = channels_last(given)
        assert torch.equal(ours, x)
        assert ours.stride() == strides
        assert channels_last(ours).data_ptr() == ours.data_ptr()


def test_part_of_a_batch_stays_where_it_is() -> None:
    for shape in ((4, 1, 2, 3, 5), (4, 1, 3, 5)):
        part = blob(*shape)[2:]
        assert channels_last(part).data_ptr() == part.data_ptr()
        assert torch.equal(channels_last(part), part)


@pytest.mark.parametrize("shape", [(2, 3, 4, 5), (2, 3, 4, 5, 6), (1, 3, 1, 1, 2)])
def test_which_are_channels_last(shape: tuple[int, ...]) -> None:
    plain, last = blob(*shape), channels_last(blob(*shape))
    assert (is_channels_last(plain), format_of(plain)) == (False, torch.contiguous_format)
    assert (is_channels_last(last), format_of(last)) == (True, FORMATS[len(shape)])
    part = last[..., ::2, :1]
    assert is_channels_last(part) is (shape[-2] == 1 and shape[-1] == 1)


def test_what_lies_both_ways_or_has_other_axes_is_not() -> None:
    for shape in ((2, 1, 4, 5, 6), (2, 1, 4, 5), (2, 3, 1, 1, 1), (2, 3, 1, 1)):
        assert not is_channels_last(channels_last(blob(*shape)))
    others: list[tuple[int, ...]] = [(2, 3), (2, 3, 4), (2, 3, 4, 5, 6, 7), ()]
    for other in others:
        assert not is_channels_last(blob(*other))
        assert format_of(blob(*other)) == torch.contiguous_format


@pytest.mark.parametrize("shape", [(2, 3, 4, 5), (2, 3, 4, 5, 6)])
def test_places(shape: tuple[int, ...]) -> None:
    x = blob(*shape)
    last = channels_last(x)
    rows = places(last)
    assert rows.data_ptr() == last.data_ptr()  # a view
    assert rows.shape == (x.numel() // 3, 3)
    assert torch.equal(rows[0], x.flatten(2)[0, :, 0])
    assert torch.equal(rows[-1], x.flatten(2)[1, :, -1])
    assert torch.equal(places(x), rows)
