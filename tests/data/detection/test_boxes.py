"""Boxes, their matching and their suppression."""

from __future__ import annotations

import math

import pytest
import torch

from bpt.data.detection.boxes import BoxCode, areas, coverage, decode, encode, jaccard
from bpt.data.detection.matching import LEFT_OUT, NOTHING, hardest, match
from bpt.data.detection.suppression import ALL, Suppression, detect

UNIT = torch.tensor([[0.0, 0, 1, 1]])
RIGHT_HALF = torch.tensor([[0.5, 0, 1, 1]])
BESIDE = torch.tensor([[1.0, 0, 2, 1]])
TURNED = torch.tensor([[0.6, 0.6, 0.2, 0.9]])


def test_overlaps_by_hand() -> None:
    quarter = torch.tensor([[0.25, 0.0, 0.75, 1.0]])
    others = torch.cat((UNIT, RIGHT_HALF, BESIDE, TURNED))
    assert areas(others).tolist() == [1, 0.5, 1, 0]
    # Of the box in the middle one half lies in the right half of the image; both together cover three quarters.
    torch.testing.assert_close(jaccard(quarter, others), torch.tensor([[0.5, 0.25 / 0.75, 0, 0]]))
    torch.testing.assert_close(coverage(quarter, others), torch.tensor([[1, 0.5, 0, 0]]))
    torch.testing.assert_close(coverage(others, quarter)[:, 0], torch.tensor([0.5, 0.5, 0, 0]))


def test_codes_by_hand() -> None:
    prior, box = torch.tensor([0.25, 0.25, 0.75, 0.5]), torch.tensor([0.5, 0.25, 1.0, 0.75])
    # Centres (0.5, 0.375) and (0.75, 0.5), sizes (0.5, 0.25) and (0.5, 0.5).
    wanted = {
        BoxCode.CORNER: [0.25, 0, 0.25, 0.25],
        BoxCode.CORNER_SIZE: [0.5, 0, 0.5, 1],
        BoxCode.CENTER_SIZE: [0.5, 0.5, 0, math.log(2)],
    }
    variances = torch.tensor([0.1, 0.1, 0.2, 0.2])
    for code, offsets in wanted.items():
        torch.testing.assert_close(encode(code, box, prior, None), torch.tensor(offsets))
        torch.testing.assert_close(encode(code, box, prior, variances), torch.tensor(offsets) / variances)


@pytest.mark.parametrize("code", BoxCode)
def test_decode_undoes_encode(code: BoxCode) -> None:
    generator = torch.Generator().manual_seed(1)
    corner, size = torch.rand(2, 5, 4, generator=generator).split(2, 2)
    boxes, priors = torch.cat((corner, corner + size + 0.1), 2)
    variances = torch.rand(5, 4, generator=generator) + 0.1
    for given in (None, variances):
        torch.testing.assert_close(decode(code, encode(code, boxes, priors, given), priors, given), boxes)


def columns(*spans: tuple[float, float]) -> torch.Tensor:
    """Boxes as high as the image."""
    return torch.tensor([[left, 0.0, right, 1.0] for left, right in spans])


def test_each_object_gets_its_best_box_before_the_others_take_theirs() -> None:
    boxes = columns((0, 0.4), (0.1, 0.4), (0.5, 1), (0.6, 1), (0.9, 1))
    objects = columns((0, 0.4), (0.12, 0.42))
    # Overlaps with the first object: 1, 0.75, 0, …; with the second: 0.28 / 0.42, 0.28 / 0.32, 0, …
    found = match(boxes, objects, None)
    assert found.objects.tolist() == [0, 1, NOTHING, NOTHING, NOTHING]
    torch.testing.assert_close(found.overlaps, torch.tensor([1, 0.875, 0, 0, 0]))
    assert match(boxes[1:], objects, None).objects.tolist() == [1, NOTHING, NOTHING, NOTHING]  # the first has none left
    assert match(boxes, objects[:1], 0.74).objects.tolist() == [0, 0, NOTHING, NOTHING, NOTHING]
    assert match(boxes, objects[:1], 0.76).objects.tolist() == [0, NOTHING, NOTHING, NOTHING, NOTHING]


def test_boxes_beyond_the_image_may_be_left_out() -> None:
    boxes, objects = columns((-0.1, 0.4), (0, 0.3)), columns((0, 0.4))
    assert match(boxes, objects, 0.5).objects.tolist() == [0, 0]
    found = match(boxes, objects, 0.5, inside_only=True)
    assert found.objects.tolist() == [LEFT_OUT, 0]
    assert found.overlaps[0] == 0


def test_without_objects_nothing_is_matched() -> None:
    found = match(columns((0, 1)), torch.empty(0, 4), 0.5)
    assert (found.objects.tolist(), found.overlaps.tolist()) == ([NOTHING], [0])


def test_the_hardest_are_those_of_the_largest_losses_the_first_of_equal_ones() -> None:
    losses = torch.tensor([[1.0, 3, 3, 2], [5, 4, 3, 2], [1, 2, 3, 4]])
    eligible = torch.tensor([[1, 1, 1, 1], [0, 1, 0, 1], [1, 1, 1, 1]]).bool()
    chosen = hardest(losses, eligible, torch.tensor([1, 3, 0]))
    assert chosen.int().tolist() == [[0, 1, 0, 0], [0, 1, 0, 1], [0, 0, 0, 0]]


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
