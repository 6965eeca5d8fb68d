"""ImageData: order, random changes, workers, ranks and resumed runs, and what its text can get wrong.

Caffe's own batches: test_data.py.
"""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from bpt.base.errors import DataError, LayerError
from bpt.config.proto import bpt_pb2 as pb
from bpt.data.image_source import ImageSource
from bpt.graph.share import Share
from tests.support.data_readers import Make, check_allocated, check_together
from tests.support.golden_cases import graph_of

PIXELS = np.random.default_rng(4).integers(0, 256, (10, 7, 6, 3), dtype=np.uint8)
WANTED = torch.from_numpy(PIXELS[:, :, :, ::-1].transpose(0, 3, 1, 2).astype(np.float32))  # blue first
RANDOM = "transform_param { mirror: true crop_size: 4 mean_value: 7 scale: 0.5 %s }"


@pytest.fixture
def images(tmp_path: Path) -> Path:
    """A list of 10 images, numbered by their labels."""
    for number, pixels in enumerate(PIXELS):
        Image.fromarray(pixels).save(tmp_path / f"image {number}.png")
    lines = (f"{tmp_path}/image {number}.png {number}\n" for number in range(len(PIXELS)))
    (tmp_path / "list.txt").write_text("".join(lines))
    return tmp_path / "list.txt"


def text(source: object, more: str = "", outer: str = "", batch_size: int = 4) -> str:
    return (
        f'layer {{ name: "i" type: "ImageData" top: "data" top: "label" {outer} image_data_param {{'
        f' source: "{source}" batch_size: {batch_size} {more} }} }}'
    )


def test_tops(reader: Make, images: Path) -> None:
    one = reader(text(images))
    assert [edge.shape for edge in one.net.graph.edges] == [(4, 3, 7, 6), (4,)]
    for rows in ([0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 0, 1]):
        data, label = one.next()
        assert data.dtype == label.dtype == torch.float32
        assert torch.equal(data, WANTED[rows])
        assert label.tolist() == rows
    assert (one.layer.epoch, one.layer.position) == (10, 12)


def test_without_a_label(reader: Make, images: Path) -> None:
    (data,) = reader(text(images).replace('top: "label"', "")).next()
    assert torch.equal(data, WANTED[:4])


def test_caffes_default_batch_is_one(reader: Make, images: Path) -> None:
    assert reader(text(images).replace("batch_size: 4", "")).next()[0].shape == (1, 3, 7, 6)


def test_rand_skip_and_shuffle(reader: Make, images: Path) -> None:
    skipping = text(images, "rand_skip: 4", batch_size=1)
    starts = {reader(skipping.replace('"i"', f'"i{name}"')).next()[1].item() for name in range(9)}  # seeds of their own
    assert starts <= {0, 1, 2, 3}
    assert len(starts) > 1
    one = reader(text(images, "shuffle: true", batch_size=10))
    epochs = []
    for _ in range(3):
        data, label = one.next()
        assert torch.equal(data, WANTED[label.int()])
        epochs.append(tuple(label.int().tolist()))
    assert {tuple(sorted(epoch)) for epoch in epochs} == {tuple(range(10))}
    assert len({*epochs, tuple(range(10))}) == 4


def test_workers_change_nothing(reader: Make, images: Path) -> None:
    """Not even how far is read ahead."""
    alone = reader(text(images, "shuffle: true", RANDOM % "num_workers: 1", batch_size=7))
    others = [
        reader(text(images, "shuffle: true", f"{RANDOM % f'num_workers: {count}'} {more}", batch_size=7))
        for count, more in ((2, ""), (3, "data_param { prefetch: 1 }"), (16, "data_param { prefetch: 9 }"), (0, ""))
    ]
    for _ in range(6):
        batch = alone.next()
        for other in others:
            assert all(map(torch.equal, other.next(), batch))
    assert len({tuple(image.flatten().tolist()) for image in batch[0]}) == 7


@pytest.mark.parametrize("counts", [(4,), (3, 1), (1, 0, 2, 1)])
def test_together_the_batch_of_one_process(reader: Make, images: Path, counts: tuple[int, ...]) -> None:
    check_together(reader, text(images, "shuffle: true", RANDOM % "num_workers: 2"), counts, 10)


def test_setting_the_share_and_the_position(reader: Make, images: Path) -> None:
    one = reader(text(images, batch_size=5), Share(0, 4, 5), 2)
    assert one.next()[1].tolist() == [0, 1, 2, 3]
    one.layer.share = Share(0, 2, 5)
    assert one.next()[1].tolist() == [5, 6]
    one.layer.position = 0
    assert one.next()[1].tolist() == [0, 1]


def test_allocated_samples(reader: Make, images: Path) -> None:
    words = "shuffle: true", RANDOM % "num_workers: 2"
    check_allocated(reader, text(images, *words, batch_size=10), text(images, *words, batch_size=3))


@pytest.mark.parametrize("workers", [1, 3])
def test_an_image_that_is_missing_ends_the_run(reader: Make, images: Path, workers: int) -> None:
    (images.parent / "image 5.png").unlink()
    one = reader(text(images, "", f"transform_param {{ num_workers: {workers} }}"))
    one.next()
    for _ in range(2):  # it can be asked again
        with pytest.raises(
            DataError,
            match=rf"{images}:6: .*/image 5\.png: no such file.*; mend the file, or take its line out of the list",
        ):
            one.next()
    assert one.layer.position == 4


def test_images_of_unlike_sizes(reader: Make, images: Path) -> None:
    Image.fromarray(PIXELS[0][:5]).save(images.parent / "image 1.png")
    with pytest.raises(DataError, match=rf"{images}: record .*image 1.png\" gives 3×5×6, but .*; set crop_size"):
        reader(text(images)).next()
    assert reader(text(images, "new_height: 3 new_width: 4")).next()[0].shape == (4, 3, 3, 4)


def test_a_test_net_crops_the_centre(reader: Make, images: Path) -> None:
    one = reader(text(images, "", "transform_param { crop_size: 4 mean_value: 7 scale: 0.5 }"), phase=pb.TEST)
    assert torch.equal(one.next()[0], (WANTED[:4, :, 1:5, 1:5] - 7) * 0.5)


def test_transformations_of_the_old_format_have_no_effect(
    reader: Make, images: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "bpt"):
        old = reader(text(images, "crop_size: 4 scale: 0.5"), phase=pb.TEST).next()[0]
    assert torch.equal(old, WANTED[:4])
    assert [message.split(" has ")[0] for message in caplog.messages] == [
        'layer "i": image_data_param.scale',
        'layer "i": image_data_param.crop_size',
    ]


@pytest.mark.parametrize(
    ("more", "outer", "message"),
    [
        ("batch_size: 0", "", "image_data_param needs a batch_size of at least 1"),
        ("new_height: 4", "", "give new_height and new_width, or neither"),
        ("", "data_param { prefetch: 0 }", "prefetch must be at least 1"),
        ("", "transform_param { force_gray: true }", "force_gray contradicts is_color: true"),
        ("is_color: false", "transform_param { force_color: true }", "force_color contradicts is_color: false"),
        ("", "transform_param { crop_size: 8 }", "crop_size 8 is larger than the image 3×7×6"),
        ("", "transform_param { mean_value: 1 mean_value: 2 }", "give mean_value once, or once for each of the 3"),
        ("", "transform_param { num_workers: 257 }", "num_workers can be at most 256"),
        ('root_folder: "nope"', "", r".*list.txt:1: nope/.*/image 0.png: no such file"),
    ],
)
def test_wrong_texts_name_the_layer(images: Path, more: str, outer: str, message: str) -> None:
    words = text(images, more, outer)
    with pytest.raises(LayerError, match=f'layer "i": {message}'):
        graph_of(words.replace("batch_size: 4", "") if "batch_size" in more else words)


def test_a_root_folder_without_its_slash(images: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(images.parent.parent)
    folder = images.parent.name
    images.write_text("image 0.png 0\n")
    assert graph_of(text(images, f'root_folder: "{folder}/"'))
    with pytest.raises(LayerError) as caught:
        graph_of(text(images, f'root_folder: "{folder}"'))
    assert str(caught.value) == (
        f'layer "i": {images}:1: {folder}image 0.png: no such file (looked for {images.parent}image 0.png); paths '
        f'begin with the root folder as it is, "{folder}", so write "{folder}/"'
    )


def test_no_source() -> None:
    with pytest.raises(LayerError, match='layer "i": image_data_param needs a source'):
        graph_of(text(""))


def test_a_rank_without_samples_reads_one_image_for_its_size(
    reader: Make, images: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = reader(text(images), Share(4, 0, 4), 2)
    indices = []
    read = ImageSource.read
    monkeypatch.setattr(ImageSource, "read", lambda self, index: indices.append(index) or read(self, index))
    assert [[tuple(top.shape) for top in one.next()] for _ in range(2)] == [[(0, 3, 7, 6), (0,)]] * 2
    assert set(indices) == {0}
