from __future__ import annotations

import pytest
import torch

from tests.support.one_layer import error_of, one_layer, shapes_of

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


def test_dense_boxes_by_hand() -> None:
    """FaceBoxes': 2 rows of 2 squares of 9, then 2 rows of 2 boxes 18 wide and 4.5 high, then min_size's boxes."""
    text = body("fixed_size: 9 density: 2 aspect_ratio: 4 flip: false min_size: 4")
    shape, images = (1, 8, 1, 1), (1, 3, 100, 200)
    boxes = one_layer(text, shape, images)(torch.zeros(shape), torch.zeros(images))[0, 0].view(-1, 4)
    # 9 / 2 is 4 in whole pixels, as is half of 9: the centres are 4 / 2 - 4 = -2 and 2 from (100, 50).
    wanted = [(100 + x, 50 + y, w, h) for w, h in ((9, 9), (18, 4.5)) for y in (-2, 2) for x in (-2, 2)]
    wanted += [(100, 50, 4, 4), (100, 50, 8, 2)]
    corners = [[x - w / 2, y - h / 2, x + w / 2, y + h / 2] for x, y, w, h in wanted]
    torch.testing.assert_close(boxes * torch.tensor([200.0, 100, 200, 100]), torch.tensor(corners))
    assert shapes_of(text, shape, images) == ((1, 2, 40),)


@pytest.mark.parametrize(
    "names", [("fixed_size", "fixed_ratio", "density"), ("fixed_sizes", "fixed_ratios", "densitys")]
)
def test_fixed_ratios_replace_squares_and_dense_boxes_are_clipped(names: tuple[str, ...]) -> None:
    size, ratio, density = names
    text = body(f"{size}: 32 {size}: 64 {density}: 1 {density}: 1 {ratio}: 4")
    shape, images = (1, 8, 1, 1), (1, 3, 40, 80)
    boxes = one_layer(text, shape, images)(torch.zeros(shape), torch.zeros(images))[0, 0].view(-1, 4)
    # 64 × 16 around (40, 20), and 128 × 32, which reaches beyond the image of 80 × 40.
    wanted = [[8 / 80, 12 / 40, 72 / 80, 28 / 40], [0, 4 / 40, 1, 36 / 40]]
    torch.testing.assert_close(boxes, torch.tensor(wanted))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ("fixed_size: 32 density: 2 density: 1", "give a density for each fixed_size, or none: they are 2 and 1"),
        ("fixed_size: 32 fixed_sizes: 3", "give fixed_size, or fixed_sizes, its other form; not both"),
        ("fixed_size: 32 density: 0", "density 0 must be at least 1"),
        ("min_size: 3 fixed_ratio: 1", "fixed_ratio goes with fixed_size, which is missing"),
        ("fixed_size: 3 fixed_ratio: -1", "fixed_ratio -1 must be above 0"),
    ],
)
def test_mistakes_of_dense_boxes(settings: str, message: str) -> None:
    assert error_of(body(settings), MAP, IMAGES) == message
