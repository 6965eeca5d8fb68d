from __future__ import annotations

import pytest
import torch

from bpt.data.detection.boxes import jaccard
from bpt.data.detection.suppression import ALL, Suppression, detect


def greedy(boxes: torch.Tensor, threshold: float, eta: float) -> list[int]:
    """The rule as SSD's paper and code tell it, box by box."""
    kept: list[int] = []
    for index, box in enumerate(boxes):
        if all(float(jaccard(box[None], boxes[other][None])) <= threshold for other in kept):
            kept.append(index)
            if eta < 1 and threshold > 0.5:
                threshold *= eta
    return kept


@pytest.mark.parametrize(("threshold", "eta"), [(0.3, 1), (0.7, 1), (0.0, 1), (0.9, 0.8), (0.4, 0.5)])
def test_what_is_kept(threshold: float, eta: float) -> None:
    generator = torch.Generator().manual_seed(3)
    corner = torch.rand(60, 2, generator=generator) / 2
    boxes = torch.cat((corner, corner + 0.2 + torch.rand(60, 2, generator=generator) / 4), 1)
    kept = Suppression(threshold, ALL, eta).select(boxes).tolist()
    assert kept == greedy(boxes, threshold, eta)
    assert 1 < len(kept) < 60


def test_best_scores() -> None:
    scores = torch.tensor([0.5, 0.9, 0.1, 0.5])
    assert Suppression(0.5).best(scores, 0.1).tolist() == [1, 0, 3]
    assert Suppression(0.5, 2).best(scores).tolist() == [1, 0]
    assert Suppression(0.5, 0).best(scores).tolist() == []


def test_detections_by_hand() -> None:
    boxes = torch.tensor([[0.0, 0, 0.4, 1], [0, 0, 0.5, 1], [0.6, 0, 1, 1]])
    scores = torch.tensor([[0.1, 0.8, 0.1], [0.1, 0.7, 0.2], [0.1, 0.3, 0.6]])
    nms = Suppression(0.45)
    found = detect(boxes, scores, 0, 0.15, nms, ALL)
    # Of label 1 the second box overlaps the first by 0.8; of label 2 the first has too low a score.
    wanted = [(1, 0.8, boxes[0]), (1, 0.3, boxes[2]), (2, 0.6, boxes[2]), (2, 0.2, boxes[1])]
    torch.testing.assert_close(found, torch.stack([torch.tensor([label, s, *b]) for label, s, b in wanted]))
    assert torch.equal(detect(boxes, scores, 0, 0.15, nms, 2), found[[0, 2]])
    assert detect(boxes, scores, -1, 0.09, nms, ALL)[:, 0].tolist() == [0, 0, 1, 1, 2, 2]
    assert detect(boxes, scores, 0, 1, nms, ALL).shape == (0, 6)
