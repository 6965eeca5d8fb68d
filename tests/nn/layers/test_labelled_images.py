"""DenseImageData, ImageSegData and ImageLabelmapData: images and the labels of their pixels."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from bpt.base.errors import LayerError
from bpt.config.proto.blobs import array_to_blob
from tests.support.data_readers import Make
from tests.support.golden_cases import graph_of

RANDOM = np.random.default_rng(4)
PIXELS = RANDOM.integers(0, 256, (4, 5, 6, 3), dtype=np.uint8)
LABELS = RANDOM.integers(0, 12, (4, 5, 6), dtype=np.uint8)
WANTED = torch.from_numpy(PIXELS[:, :, :, ::-1].transpose(0, 3, 1, 2).astype(np.float32))  # blue first
FIELDS = {"DenseImageData": "dense_image_data_param"}


@pytest.fixture
def images(tmp_path: Path) -> Path:
    for number, (pixels, labels) in enumerate(zip(PIXELS, LABELS, strict=True)):
        Image.fromarray(pixels).save(tmp_path / f"{number}.png")
        Image.fromarray(labels).save(tmp_path / f"{number}_labels.png")
    (tmp_path / "list.txt").write_text("".join(f"{i}.png {i}_labels.png\n" for i in range(4)))
    return tmp_path / "list.txt"


def text(kind: str, source: Path, more: str = "", outer: str = "", tops: int = 2, batch_size: int = 2) -> str:
    written = " ".join(f'top: "{top}"' for top in ("data", "label", "size")[:tops])
    return (
        f'layer {{ name: "i" type: "{kind}" {written} {outer} {FIELDS.get(kind, "image_data_param")} {{'
        f' source: "{source}" root_folder: "{source.parent}/" batch_size: {batch_size} {more} }} }}'
    )


@pytest.mark.parametrize("kind", ["DenseImageData", "ImageSegData"])
def test_images_and_their_labels(kind: str, reader: Make, images: Path) -> None:
    outer = "transform_param { mean_value: 1 mean_value: 2 mean_value: 3 scale: 0.5 }"
    one = reader(text(kind, images, outer=outer))
    assert [edge.shape for edge in one.net.graph.edges] == [(2, 3, 5, 6), (2, 1, 5, 6)]
    for rows in ([0, 1], [2, 3], [0, 1]):
        data, label = one.next()
        assert torch.equal(data, (WANTED[rows] - torch.tensor([1.0, 2, 3]).view(3, 1, 1)) * 0.5)
        assert torch.equal(label, torch.from_numpy(LABELS[rows]).float().unsqueeze(1))


@pytest.mark.parametrize("phase", ["TRAIN", "TEST"])
def test_crops_and_flips_are_of_both_alike(phase: str, reader: Make, images: Path) -> None:
    """Labels are the images' blue numbers: they stay so."""
    for number, pixels in enumerate(PIXELS):
        Image.fromarray(pixels[:, :, 2]).save(images.parent / f"{number}_labels.png")
    more = "crop_height: 3 crop_width: 4 mirror: true"
    one = reader(text("DenseImageData", images, more, f"phase: {phase}", batch_size=4))
    assert [edge.shape for edge in one.net.graph.edges] == [(4, 3, 3, 4), (4, 1, 3, 4)]
    seen = []
    for _ in range(4):
        data, label = one.next()
        assert torch.equal(data[:, :1], label)
        seen.append(label.flipud() if phase == "TRAIN" else label.sort(3).values)
    assert any(not torch.equal(seen[0], other) for other in seen[1:]) == (phase == "TRAIN")


def test_sizes(reader: Make, images: Path) -> None:
    """Labels take the nearest pixel."""
    _, label = reader(text("DenseImageData", images, "new_height: 10 new_width: 3")).next()
    assert torch.equal(label[0, 0], torch.from_numpy(LABELS[0].repeat(2, 0)[:, ::2]).float())


def test_small_images_are_padded(reader: Make, images: Path) -> None:
    outer = "transform_param { crop_size: 8 mean_value: 7 }"
    data, label, size = reader(text("ImageSegData", images, "label_type: PIXEL", outer, 3)).next()
    assert torch.equal(data[:, :, :5, :6], WANTED[:2] - 7) and data[:, :, 5:].eq(0).all() and data[..., 6:].eq(0).all()
    assert torch.equal(label[:, 0, :5, :6], torch.from_numpy(LABELS[:2]).float())
    assert label[:, :, 5:].eq(255).all() and label[..., 6:].eq(255).all()
    assert size.flatten(1).tolist() == [[5, 6]] * 2


def test_a_mean_image_is_cut_like_the_image(reader: Make, images: Path) -> None:
    mean = RANDOM.random((1, 3, 5, 6), dtype=np.float32)
    path = images.parent / "mean.binaryproto"
    path.write_bytes(array_to_blob(mean).SerializeToString())
    outer = f'phase: TEST transform_param {{ mean_file: "{path}" scale: 0.5 crop_size: %d }}'
    data, _ = reader(text("ImageSegData", images, "label_type: PIXEL", outer % 3)).next()
    torch.testing.assert_close(data, ((WANTED[:2] - torch.from_numpy(mean)) * 0.5)[:, :, 1:4, 1:4])
    for size, message in ((6, "the crop, 6 × 6, is larger"), (3, "the mean image is 3×5×6, the image 3×4×4: compute")):
        more = "new_height: 4 new_width: 4" if size == 3 else ""
        with pytest.raises(LayerError, match=message):
            graph_of(text("ImageSegData", images, f"label_type: PIXEL {more}", outer % size))


def test_one_label_for_all_pixels(reader: Make, images: Path) -> None:
    images.write_text("0.png 3\n1.png 9\n")
    _, label = reader(text("ImageSegData", images, "label_type: IMAGE")).next()
    assert label.flatten(1).unique(dim=1).tolist() == [[3], [9]]
    _, label = reader(text("ImageSegData", images, "label_type: NONE ignore_label: 9")).next()
    assert label.unique().tolist() == [9]


def test_edges(reader: Make, images: Path) -> None:
    for number in range(4):
        Image.fromarray(PIXELS[number, :, :, 0]).save(images.parent / f"{number}_labels.png")
    _, label = reader(text("ImageLabelmapData", images)).next()
    assert torch.equal(label[:, 0], torch.from_numpy(PIXELS[:2, :, :, 0] > 127).float())


@pytest.mark.parametrize(
    ("kind", "more", "outer", "line", "message"),
    [
        ("DenseImageData", "new_height: 3", "", "", "give new_height and new_width, or neither"),
        ("DenseImageData", "crop_height: 3", "", "", "give crop_height and crop_width, or neither"),
        (
            "DenseImageData",
            "",
            "transform_param { crop_size: 6 }",
            "",
            "the crop, 6 × 6, is larger than the image, 6 × 5",
        ),
        ("DenseImageData", "", 'transform_param { mean_file: "m" mean_value: 1 }', "", "give mean_file or mean_value"),
        ("ImageSegData", "", 'transform_param { mean_file: "m" }', "", "m: no such file"),
        ("ImageSegData", "", "transform_param { augment_param { } }", "", "augment_param is not for ImageSegData"),
        (
            "DenseImageData",
            "",
            "transform_param { mean_value: 1 mean_value: 2 }",
            "",
            "once for each of the 3 channels",
        ),
        ("DenseImageData", "", "", "0.png", 'list.txt:1: "0.png" needs the path of an image and the path of an'),
        ("ImageSegData", "label_type: IMAGE", "", "0.png x", 'the label "x" is not an integer in 0 ... 255'),
        ("ImageSegData", "ignore_label: 256", "", "", "ignore_label must be at most 255"),
        ("ImageData", "ignore_label: 3", "", "0.png 3", "ignore_label is a setting of ImageSegData"),
    ],
)
def test_mistakes(kind: str, more: str, outer: str, line: str, message: str, images: Path) -> None:
    if line:
        images.write_text(line + "\n")
    with pytest.raises(LayerError) as error:
        graph_of(text(kind, images, more, outer))
    assert message in str(error.value)


def test_sizes_must_agree(images: Path) -> None:
    Image.fromarray(LABELS[0, :3]).save(images.parent / "0_labels.png")
    with pytest.raises(LayerError, match=r"image and labels are of 6 × 5 and 6 × 3 pixels; they must agree"):
        graph_of(text("DenseImageData", images))
