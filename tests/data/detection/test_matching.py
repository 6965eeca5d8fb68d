from __future__ import annotations

import torch

from bpt.data.detection.matching import LEFT_OUT, NOTHING, hardest, match


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
