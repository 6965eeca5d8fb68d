"""Batch normalisation over ranks: against the formula in float64."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from bpt.nn.pass_context import PassContext
from tests.support.layer_ranks import on_ranks, rows_of, run_layer, whole_of
from tests.support.one_layer import gradient_of, one_layer

SYNC = 'type: "BatchNorm" batch_norm_param { sync: true moving_average_fraction: 0.5 }'
COUNTS = (3, 0, 1, 4)
EPS = 1e-5


def by_formula(x: Tensor, diff: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Top, bottom's diff, mean and unbiased variance of ``(N, C, …)``, all in float64."""
    x = x.double().requires_grad_()
    axes = [axis for axis in range(x.dim()) if axis != 1]
    mean = x.mean(axes, keepdim=True)
    variance = ((x - mean) ** 2).mean(axes, keepdim=True)
    top = (x - mean) / (variance + EPS).sqrt()
    top.backward(diff.double())
    n = x.numel() // x.shape[1]
    return top.detach(), gradient_of(x), mean.flatten().detach(), variance.flatten().detach() * n / (n - 1)


@pytest.mark.parametrize("shape", [(8, 3), (8, 3, 5), (8, 3, 5, 4), (8, 3, 2, 2, 2)])
@pytest.mark.parametrize(("mean", "deviation"), [(0.0, 1.0), (-1e4, 1.0), (3e5, 0.5), (1e-3, 1e-6)])
def test_exact_also_where_the_mean_is_much_larger_than_the_deviation(
    shape: tuple[int, ...], mean: float, deviation: float
) -> None:
    generator = torch.Generator().manual_seed(1)
    x = mean + deviation * torch.randn(shape, generator=generator)
    diff = torch.randn(shape, generator=generator)
    top, bottom_diff, means, variances = by_formula(x, diff)

    def run(context: PassContext) -> tuple[Tensor, Tensor, list[list[float]]]:
        layer = one_layer(SYNC, shape, context=context)
        rows = rows_of(context.split(8))
        mine = x[rows].requires_grad_()
        y = layer(mine)
        y.backward(diff[rows])
        return y.detach(), gradient_of(mine), [blob.tolist() for blob in layer.blobs]

    ranks = on_ranks(COUNTS, run)
    # A few roundings of float32; or of float64, times (mean / deviation)², where that is more.
    tolerance = max(1e-6, 2**-51 * (mean / deviation) ** 2)
    torch.testing.assert_close(whole_of([r[0] for r in ranks], COUNTS).double(), top, rtol=tolerance, atol=tolerance)
    scale = bottom_diff.abs().max()
    torch.testing.assert_close(
        whole_of([r[1] for r in ranks], COUNTS).double() / scale, bottom_diff / scale, rtol=0, atol=2 * tolerance
    )
    for _, _, blobs in ranks:
        assert blobs == ranks[0][2]  # to the last bit
        torch.testing.assert_close(torch.tensor(blobs[0]), means.float(), rtol=1e-6, atol=0)
        torch.testing.assert_close(torch.tensor(blobs[1]), variances.float(), rtol=tolerance, atol=0)
        assert blobs[2] == [1]


def test_by_hand() -> None:
    # 1 | 3, 8: mean 4, unbiased variance (9 + 1 + 16) / 2 = 13. Fraction 0.5, twice: 4 · 1.5, 13 · 1.5, 1.5.
    def run(context: PassContext) -> list[list[float]]:
        layer = one_layer(SYNC, (3, 1), context=context)
        mine = torch.tensor([[1.0], [3], [8]])[rows_of(context.split(3))]
        layer(mine)
        layer(mine)
        return [blob.tolist() for blob in layer.blobs]

    assert on_ranks((1, 2), run) == [[[6.0], [19.5], [1.5]]] * 2


def test_one_element_on_all_ranks() -> None:
    def run(context: PassContext) -> tuple[list[list[float]], list[float], list[float]]:
        layer = one_layer(SYNC, (1, 1), context=context)
        mine = torch.tensor([[5.0]])[rows_of(context.split(1))].requires_grad_()
        top = layer(mine)
        top.sum().backward()
        return [blob.tolist() for blob in layer.blobs], top.flatten().tolist(), gradient_of(mine).flatten().tolist()

    assert on_ranks((0, 1), run) == [([[5.0], [0.0], [1.0]], [], []), ([[5.0], [0.0], [1.0]], [0.0], [0.0])]


def test_no_element_on_any_rank_changes_nothing() -> None:
    def run(context: PassContext) -> tuple[list[list[float]], tuple[int, ...]]:
        layer = one_layer(SYNC, (0, 2, 3), context=context)
        mine = torch.zeros(0, 2, 3, requires_grad=True)
        layer(mine).sum().backward()
        return [blob.tolist() for blob in layer.blobs], tuple(gradient_of(mine).shape)

    assert on_ranks((0, 0), run) == [([[0.0, 0.0], [0.0, 0.0], [0.0]], (0, 2, 3))] * 2


@pytest.mark.parametrize(
    ("settings", "by_default", "together"),
    [("", False, False), ("", True, True), ("sync: false", True, False), ("sync: true", False, True)],
)
def test_who_is_asked(settings: str, by_default: bool, together: bool) -> None:
    def run(context: PassContext) -> list[list[float]]:
        layer = one_layer(f'type: "BatchNorm" batch_norm_param {{ {settings} }}', (4, 1), context=context)
        layer(torch.tensor([[1.0], [3], [5], [7]])[rows_of(context.split(4))])
        return [blob.tolist() for blob in layer.blobs[:1]]

    assert on_ranks((2, 2), run, sync_batch_norm=by_default) == ([[[4.0]], [[4.0]]] if together else [[[2.0]], [[6.0]]])


def test_stored_statistics_need_no_other_rank() -> None:
    def run(context: PassContext) -> None:
        def total(tensor: torch.Tensor, layer: str) -> torch.Tensor:
            raise AssertionError("asked")

        layer = one_layer(f"{SYNC} phase: TEST", (4, 1), context=replace(context, total=total))
        run_layer(layer, [torch.ones(2, 1)], 1)

    on_ranks((2, 2), run)


def test_one_rank_keeps_the_fast_kernels() -> None:
    x = torch.rand(4, 3, 2, 2, generator=torch.Generator().manual_seed(0))
    synced = one_layer(SYNC, (4, 3, 2, 2))
    plain = one_layer(SYNC.replace("sync: true", ""), (4, 3, 2, 2))
    assert torch.equal(synced(x), plain(x))
