"""Regions of planes: bins over them, the place of the largest number in each bin, and sums over them.

A region belongs to one image of a batch of planes ``(N, channels, H, W)``. Its bins are windows of whole cells, given
separately for each axis: the first cell and the one after the last, ``(regions, bins, 2)``, clipped to the plane. A bin
without cells is empty.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

REGIONS = 64  # processed at a time, to keep the result between two products small


def round_away(numbers: Tensor) -> Tensor:
    """Return the nearest whole numbers, with halves rounded away from 0 as in C (torch rounds them to even)."""
    whole = numbers.trunc()
    return whole + numbers.sign() * ((numbers - whole).abs() >= 0.5)


def bins_along(start: Tensor, size: Tensor, bins: int, cells: int, *, whole: bool) -> Tensor:
    """Return the windows of equal bins of an axis: from ``floor(i · size / bins)`` to ``ceil((i + 1) · size / bins)``.

    Args:
        start, size: for each region ``(regions,)``, in cells and in the blobs' number type. Caffe divides in this type,
            and its rounding decides whether a window has one cell more.
        bins: the number of bins.
        cells: the number of cells of the plane on this axis.
        whole: whether starts are whole cells, which are added after rounding; others are added before.
    """
    edges = torch.arange(bins + 1, dtype=size.dtype, device=size.device) * (size / bins).unsqueeze(1)
    offset = start.unsqueeze(1)
    if whole:
        first, last = edges[:, :-1].floor() + offset, edges[:, 1:].ceil() + offset
    else:
        first, last = (edges[:, :-1] + offset).floor(), (edges[:, 1:] + offset).ceil()
    return torch.stack((first, last), 2).clamp_(0, cells).long()


def max_of_bins(planes: Tensor, images: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """Return the largest number of each bin, ``(regions, channels, bins, bins)``, 0 for an empty one.

    Of equal numbers the first one in the plane gets the diff, as in Caffe.
    """
    channels, cells = planes.shape[1], planes.shape[2] * planes.shape[3]
    with torch.no_grad():
        places = _places(planes.permute(0, 2, 3, 1).contiguous(), images, rows, columns).permute(0, 3, 1, 2)
        first = (images[:, None] * channels + torch.arange(channels, device=planes.device)) * cells
        flat = places.clamp(min=0) + first[:, :, None, None]
    numbers = planes.reshape(-1).gather(0, flat.flatten()).view(flat.shape)
    return torch.where(places < 0, 0, numbers)


def _places(planes: Tensor, images: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """Return the place of the largest number of each bin: ``(regions, bins, bins, channels)``; -1 for an empty bin.

    The planes are ``(N, H, W, channels)``. Four windows, which may overlap and whose sides are powers of two, cover
    each bin. The largest numbers of all such windows are found by doubling (Bender, Farach-Colton, *The LCA Problem
    Revisited*, 2000, the sparse table).
    """
    height, width, channels = planes.shape[1:]
    found = torch.full((len(images), rows.shape[1], columns.shape[1], channels), -1, device=planes.device)
    heights, widths = (
        torch.frexp((ends[..., 1] - ends[..., 0]).clamp(min=0).float()).exponent for ends in (rows, columns)
    )
    some = (heights > 0)[:, :, None] & (widths > 0)[:, None, :]
    tall = planes, torch.arange(height * width, device=planes.device).view(1, height, width, 1).expand_as(planes)
    for power_y in range(int(heights.max()) if some.any() else 0):
        best = tall
        for power_x in range(int(widths.max())):
            bins = some & (heights == power_y + 1)[:, :, None] & (widths == power_x + 1)[:, None, :]
            region, i, j = bins.nonzero(as_tuple=True)
            if len(region):
                top, bottom = rows[region, i].unbind(1)
                left, right = columns[region, j].unbind(1)
                corners = [
                    _part(best, (images[region], y, x))
                    for y in (top, bottom - 2**power_y)
                    for x in (left, right - 2**power_x)
                ]
                found[region, i, j] = functools.reduce(_larger, corners)[1]
            step = 2**power_x
            best = _larger(_part(best, np.s_[:, :, :-step]), _part(best, np.s_[:, :, step:]))
        step = 2**power_y
        tall = _larger(_part(tall, np.s_[:, :-step]), _part(tall, np.s_[:, step:]))
    return found


Peaks = tuple[Tensor, Tensor]
"""The largest numbers so far and their places."""


def _part(peaks: Peaks, index: Any) -> Peaks:
    return peaks[0][index], peaks[1][index]


def _larger(one: Peaks, other: Peaks) -> Peaks:
    """Return the larger one of each two numbers; of equal ones the first."""
    better = (other[0] > one[0]) | ((other[0] == one[0]) & (other[1] < one[1]))
    return torch.where(better, other[0], one[0]), torch.where(better, other[1], one[1])


def mean_of_bins(planes: Tensor, images: Tensor, channels: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """Return the mean of each bin, 0 for an empty one: ``(regions, outputs, bins, bins)``.

    It uses the table of sums over all cells above and left of each (Crow, *Summed-Area Tables for Texture Mapping*,
    1984), in double precision, so that differences of large sums are exact enough.

    Args:
        channels: the channel that each bin of each output reads, ``(outputs, bins, bins)``.
    """
    table = functional.pad(planes.double().cumsum(2).cumsum(3), (1, 0, 1, 0))
    first = images.view(-1, 1, 1, 1) * planes.shape[1] + channels

    def corner(row: int, column: int) -> Tensor:
        y, x = rows[:, None, :, None, row], columns[:, None, None, :, column]
        flat = (first * table.shape[2] + y) * table.shape[3] + x
        return table.reshape(-1).gather(0, flat.flatten()).view(flat.shape)

    sums = corner(1, 1) - corner(0, 1) - corner(1, 0) + corner(0, 0)
    height, width = ((windows[..., 1] - windows[..., 0]).clamp(min=0) for windows in (rows, columns))
    cells = height[:, None, :, None] * width[:, None, None, :]
    return torch.where(cells > 0, sums / cells.clamp(min=1), 0).to(planes.dtype)


def weights_along(points: Tensor, cells: int, margin: float) -> Tensor:
    """Return the weights of an axis' cells at points on it, by linear interpolation between the two nearest.

    Args:
        points: the points, in any shape; 0 is the first cell.
        margin: the distance outside the plane within which a point has the number of the border cell. Farther away it
            is 0.

    Returns:
        The weights in the shape of ``points``, with ``cells`` as the last axis.
    """
    inside = (points >= -margin) & (points <= cells - 1 + margin)
    distances = points.clamp(0, cells - 1).unsqueeze(-1) - torch.arange(cells, device=points.device)
    return (1 - distances.abs()).clamp_(min=0) * inside.unsqueeze(-1)


def weighted(planes: Tensor, images: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """Return weighted sums of the planes of each region's image: ``(regions, channels, bins, bins)``.

    Args:
        rows, columns: the factors, ``(regions, bins, cells)``.
    """
    sums = planes.new_zeros(len(images), planes.shape[1], rows.shape[1], columns.shape[1])
    for image in sorted(set(images.tolist())):
        for own in (images == image).nonzero().squeeze(1).split(REGIONS):
            by_row = rows[own].flatten(0, 1) @ planes[image].movedim(1, 0).flatten(1)  # (regions · bins, channels · W)
            by_row = by_row.view(len(own), rows.shape[1], *planes.shape[1::2]).transpose(1, 2)
            sums = sums.index_copy(0, own, by_row @ columns[own].unsqueeze(1).transpose(2, 3))
    return sums
