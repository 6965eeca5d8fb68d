from __future__ import annotations

import pytest
import torch

from tests.one_layer import error_of, one_layer, shapes_of

MAP, IMAGES = (2, 8, 2, 3), (2, 3, 20, 30)


def body(settings: str) -> str:
    return f'type: "PriorBox" prior_box_param {{ {settings} }}'


def test_sizes_by_hand() -> None:
    text = body("min_size: 4.9 max_size: 9.2 aspect_ratio: 4 aspect_ratio: 1 aspect_ratio: 0.25 flip: true")
    boxes, variances = one_layer(text, MAP, IMAGES)(torch.zeros(MAP), torch.zeros(IMAGES)).view(2, 6, 4, 4)
    sizes = (boxes[..., 2:] - boxes[..., :2]) * torch.tensor([30, 20])
    # 4 and 9, without what follows the point: squares of 4 and of 6, then 8 wide and 2 high, and the other way round.
    wanted = torch.tensor([[4.0, 4], [6, 6], [8, 2], [2, 8]]).expand(6, 4, 2)
    torch.testing.assert_close(sizes, wanted)
    centres = (boxes[..., 2:] + boxes[..., :2]) / 2 * torch.tensor([30, 20])
    columns, rows = [5.0, 15, 25] * 2, [5.0] * 3 + [15.0] * 3
    torch.testing.assert_close(centres, torch.tensor([columns, rows]).T[:, None].expand(6, 4, 2))
    assert (variances == torch.tensor(0.1)).all()
    assert shapes_of(text, MAP, IMAGES) == ((1, 2, 96),)


@pytest.mark.parametrize("size", ["img_size: 40", "img_h: 40 img_w: 40"])
def test_the_images_size_may_be_told(size: str) -> None:
    boxes = one_layer(body(f"min_size: 8 step: 10 offset: 0 {size}"), MAP, IMAGES)(
        torch.zeros(MAP), torch.zeros(IMAGES)
    )
    torch.testing.assert_close(boxes[0, 0, 4:8], torch.tensor([10 - 4, -4, 10 + 4, 4]) / 40)


def test_boxes_are_kept_whatever_the_number_of_samples() -> None:
    """An export with an open batch, behind a pass of four samples, once took it that there are never four."""
    layer = one_layer(body("min_size: 8"), MAP, IMAGES)
    kept = [layer(torch.zeros(samples, *MAP[1:]), torch.zeros(samples, *IMAGES[1:])) for samples in (4, 2)]
    assert kept[0].data_ptr() == kept[1].data_ptr()
    other = layer(torch.zeros(4, 8, 4, 3), torch.zeros(4, 3, 20, 30))
    assert other.shape == (1, 2, 4 * 3 * 4)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ("", "give at least one min_size, in pixels"),
        ("min_size: 0.5", "min_size 0.5 must be at least 1"),
        ("min_size: 4 aspect_ratio: 0", "aspect_ratio 0 must be above 0"),
        ("min_size: 4 max_size: 4", "max_size 4 must be above its min_size 4"),
        ("min_size: 4 max_size: 5 max_size: 6", "give a max_size for each min_size, or none: they are 2 and 1"),
        ("min_size: 4 variance: 1 variance: 1", "give variance four times, or once for all, not 2 times"),
        ("min_size: 4 variance: -1", "variance -1 must be above 0"),
        ("min_size: 4 img_size: 3 img_h: 3", "give img_size, or img_h and img_w, not both"),
        ("min_size: 4 step_h: 3", "give step_h and step_w, or neither"),
        ("min_size: 4 step: 0", "step must be above 0"),
    ],
)
def test_refusals(settings: str, message: str) -> None:
    assert error_of(body(settings), MAP, IMAGES).endswith(message)


def test_bottoms() -> None:
    wanted = "needs a feature map and images of 4 axes (N, channels, rows, columns)"
    assert wanted in error_of(body("min_size: 4"), MAP, (2, 3))
