"""Random numbers belong to rows and columns of the whole batch, whoever draws them."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor

from bpt.graph.share import Share, whole_batch
from bpt.nn.layers.random_masks import BLOCKS, draw_uniform
from bpt.nn.pass_context import PassContext
from tests.support.layer_ranks import rows_of, shares_of

CPU = torch.device("cpu")


def draw(context: PassContext, share: Share, *row: int) -> Tensor:
    numbers = draw_uniform(context, share, (share.count, *row), CPU, "test", "layer")
    assert numbers.is_contiguous()
    return numbers


@pytest.mark.parametrize("row", [(), (3,), (5000,), (200, 7, 5)])
@pytest.mark.parametrize("samples", [1, 7, 16, 50])
def test_any_split_draws_the_same(samples: int, row: tuple[int, ...]) -> None:
    whole = draw(PassContext(seed=3), whole_batch(samples), *row)
    assert whole.shape == (samples, *row)
    assert whole.unique().numel() >= 0.98 * whole.numel()  # no block is another's copy
    for rotation in (0.0, 0.3, 0.9):
        for first in range(0, samples + 1, 3):
            for share in shares_of((first, 0, samples - first)):
                context = PassContext(seed=3, ranks=3, rotation=rotation)
                assert torch.equal(draw(context, share, *row), whole[rows_of(share, rotation)])


def test_columns_of_a_slice() -> None:
    whole = draw(PassContext(seed=3), whole_batch(6), 70, 2)
    share = Share(2, 3, 6)
    for start, stop in itertools.combinations((0, 1, 40, 70), 2):
        context = PassContext(seed=3, rotation=0.5, columns=Share(start, stop - start, 70))
        part = draw(context, share, stop - start, 2)
        assert torch.equal(part, whole[[5, 0, 1], start:stop])


def test_a_rank_draws_the_blocks_that_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = []
    original = PassContext.pass_generator

    def noting(self: PassContext, *key: str | int, device: torch.device) -> torch.Generator:
        keys.append(key)
        return original(self, *key, device=device)

    monkeypatch.setattr(PassContext, "pass_generator", noting)
    draw(PassContext(), whole_batch(320), 10000)
    assert keys == [("test", "layer", block) for block in range(BLOCKS)]
    keys.clear()
    draw(PassContext(), Share(39, 22, 320), 10000)  # blocks of 20 rows
    assert keys == [("test", "layer", block) for block in (1, 2, 3)]
    keys.clear()
    draw(PassContext(), whole_batch(320), 10)  # too few numbers for a second one
    assert keys == [("test", "layer", 0)]


def test_uniform() -> None:
    numbers = draw(PassContext(), whole_batch(100), 10000)
    # The standard deviation of the mean of 1e6 is 0.29 / 1000; of a share of 1e5 0.5 / 316 at most.
    assert abs(numbers.mean() - 0.5) < 0.0015
    assert (numbers >= 0).all()
    assert (numbers < 1).all()
    for tenth in range(10):
        share = ((numbers >= tenth / 10) & (numbers < (tenth + 1) / 10)).float().mean()
        assert abs(share - 0.1) < 0.0015


@pytest.mark.gpu
@pytest.mark.parametrize("rotation", [0.0, 0.3])
def test_any_split_draws_the_same_on_a_gpu(rotation: float) -> None:
    device = torch.device("cuda")

    def drawn(share: Share) -> Tensor:
        context = PassContext(seed=3, rotation=rotation)
        return draw_uniform(context, share, (share.count, 4097), device, "test", "layer")

    whole = draw_uniform(PassContext(seed=3), whole_batch(50), (50, 4097), device, "test", "layer")
    for share in shares_of((17, 0, 33)):
        assert torch.equal(drawn(share), whole[rows_of(share, rotation)])
