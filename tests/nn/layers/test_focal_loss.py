"""FocalLoss and L1Loss against what they are, written down; their diffs: tests/nn/gradients."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from bpt.base.errors import LayerError
from tests.support.one_layer import one_layer, tops_of

GENERATOR = torch.Generator().manual_seed(1)
SCORES = torch.rand(4, 3, 2, generator=GENERATOR) * 4 - 2
LABELS = torch.tensor([[0.0, 2], [1, 1], [2, 0], [0, 0]])


def loss(body: str, *bottoms: torch.Tensor) -> float:
    (top,) = tops_of(one_layer(body, *(tuple(b.shape) for b in bottoms)), *bottoms)
    return top.item()


def test_a_label_for_each_place() -> None:
    p = SCORES.softmax(1).gather(1, LABELS.long().unsqueeze(1)).flatten()
    wanted = (-0.25 * (1 - p) ** 2 * p.log()).sum().item()
    assert loss('type: "FocalLoss"', SCORES, LABELS) == pytest.approx(wanted / 8)
    plain = 'type: "FocalLoss" focal_loss_param { gamma: 0 alpha: 1 }'
    assert loss(plain, SCORES, LABELS) == pytest.approx(functional.cross_entropy(SCORES, LABELS.long()).item())
    kept = LABELS.flatten() != 1
    wanted = (-0.25 * (1 - p) ** 2 * p.log())[kept].sum().item()
    ignoring = 'type: "FocalLoss" loss_param { ignore_label: 1 }'
    assert loss(ignoring, SCORES, LABELS) == pytest.approx(wanted / 6)


def test_a_label_for_each_score() -> None:
    labels = (SCORES > 0.3).float()
    p = torch.where(labels == 1, SCORES.sigmoid(), 1 - SCORES.sigmoid())
    wanted = (-torch.where(labels == 1, 0.25, 0.75) * (1 - p) ** 2 * p.log()).sum().item()
    assert loss('type: "FocalLoss"', SCORES, labels) == pytest.approx(wanted / 4)
    by_all = 'type: "FocalLoss" loss_param { normalization: FULL }'
    assert loss(by_all, SCORES, labels) == pytest.approx(wanted / 24)


def test_what_is_known_for_sure_has_a_slope() -> None:
    for labels in (torch.ones(1, 2), torch.zeros(1)):
        scores = torch.tensor([[200.0, -200]], requires_grad=True)
        layer = one_layer('type: "FocalLoss" focal_loss_param { gamma: 0.5 }', (1, 2), tuple(labels.shape))
        (diff,) = torch.autograd.grad(tops_of(layer, scores, labels)[0], scores)
        assert diff.isfinite().all()


def test_linear() -> None:
    own = SCORES.gather(1, LABELS.long().unsqueeze(1))
    wanted = -0.25 * functional.logsigmoid(2 * own + 1).mean().item() / 2
    linear = 'type: "FocalLoss" focal_loss_param { type: LINEAR }'
    assert loss(linear, SCORES, LABELS) == pytest.approx(wanted)
    with pytest.raises(LayerError, match="LINEAR is for a label for each place"):
        loss(linear, SCORES, SCORES)


def test_l1_loss() -> None:
    flow = SCORES.clone()
    flow[0, 0, 0] = torch.nan
    apart = (SCORES.flip(0) - flow).nan_to_num(0)
    assert loss('type: "L1Loss"', SCORES.flip(0), flow) == pytest.approx(apart.abs().sum().item() / 4)
    assert loss('type: "L1Loss"', SCORES) == pytest.approx(SCORES.abs().sum().item() / 4)
    body = 'type: "L1Loss" l1_loss_param { l2_per_location: true normalize_by_num_entries: true }'
    wanted = (apart.square().sum(1) + 0.01).sqrt().sum().item() / (23 / 3)
    assert loss(body, SCORES.flip(0), flow) == pytest.approx(wanted)
    flat = 'type: "L1Loss" l1_loss_param { plateau: 1.5 }'
    assert loss(flat, SCORES) == pytest.approx(SCORES.abs()[SCORES.abs() >= 1.5].sum().item() / 4)
