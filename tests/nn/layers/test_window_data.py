"""WindowData: how batches are made up, that they do not depend on ranks and workers, and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from bpt.base.errors import DataError, LayerError
from bpt.data.opencv_resize import resize
from bpt.data.transform import write_mean
from bpt.graph.share import Share
from tests.support.data_readers import Make, check_together
from tests.support.golden_cases import graph_of

PIXELS = np.random.default_rng(4).integers(0, 256, (4, 12, 16, 3), dtype=np.uint8)
BLUE_FIRST = torch.from_numpy(PIXELS[:, :, :, ::-1].transpose(0, 3, 1, 2).astype(np.float32))
SIZE = 4


@pytest.fixture
def windows(tmp_path: Path) -> Path:
    """4 images, each with 6 windows of 4 × 4 pixels: 2 of the foreground, of classes 1 to 8, and 4 others."""
    lines = []
    for number, pixels in enumerate(PIXELS):
        Image.fromarray(pixels).save(tmp_path / f"{number}.png")
        lines += [f"# {number}", f"{number}.png", "3", "12", "16", "6"]
        lines += [f"{2 * number + k + 1} 0.7 {k} {k + 1} {k + 3} {k + 4}" for k in range(2)]
        lines += [f"3 0.2 {k + 5} {k} {k + 8} {k + 3}" for k in range(4)]
    (tmp_path / "windows.txt").write_text("\n".join(lines))
    return tmp_path / "windows.txt"


def text(source: Path, more: str = "", transform: str = "crop_size: 4", batch_size: int = 8) -> str:
    return (
        f'layer {{ name: "w" type: "WindowData" top: "data" top: "label" transform_param {{ {transform} }}'
        f' window_data_param {{ source: "{source}" root_folder: "{source.parent}/"'
        f" batch_size: {batch_size} {more} }} }}"
    )


def candidates(label: float) -> list[torch.Tensor]:
    """What a sample with this label may be."""
    if label:
        image, k = divmod(int(label) - 1, 2)
        return [BLUE_FIRST[image, :, k + 1 : k + 5, k : k + 4]]
    return [image[:, k : k + 4, k + 5 : k + 9] for image in BLUE_FIRST for k in range(4)]


def test_batches(reader: Make, windows: Path) -> None:
    """A quarter of the batch is foreground and comes last; all windows are drawn, in orders that do not repeat."""
    one = reader(text(windows))
    assert [edge.shape for edge in one.net.graph.edges] == [(8, 3, 4, 4), (8,)]
    labels, drawn = [], set()
    for _ in range(40):
        data, label = one.next()
        assert [value > 0 for value in label.tolist()] == [False] * 6 + [True] * 2
        for sample, value in zip(data, label.tolist(), strict=True):
            assert any(torch.equal(sample, each) for each in candidates(value))
            drawn.add((value, *sample.flatten().tolist()))
        labels.append(tuple(label[6:].tolist()))
    assert len(drawn) == 8 + 16
    assert len(set(labels)) > 20
    assert (one.layer.epoch, one.layer.position) == (24, 320)


@pytest.mark.parametrize(("fraction", "count"), [(0, 0), (0.49, 3), (0.5, 4), (1, 8)])
def test_fg_fraction(reader: Make, windows: Path, fraction: float, count: int) -> None:
    label = reader(text(windows, f"fg_fraction: {fraction}")).next()[1]
    assert [value > 0 for value in label.tolist()] == [False] * (8 - count) + [True] * count


def test_mirror_mean_and_scale(reader: Make, windows: Path) -> None:
    plain = reader(text(windows, "fg_fraction: 1")).next()
    transform = "crop_size: 4 mirror: true mean_value: 3 mean_value: 4 mean_value: 5 scale: 0.5"
    data, label = reader(text(windows, "fg_fraction: 1", transform)).next()
    assert torch.equal(label, plain[1])
    mean = torch.tensor([3.0, 4, 5]).view(3, 1, 1)
    flipped = [torch.equal(new, (old.flip(2) - mean) * 0.5) for new, old in zip(data, plain[0], strict=True)]
    kept = [torch.equal(new, (old - mean) * 0.5) for new, old in zip(data, plain[0], strict=True)]
    assert all(a != b for a, b in zip(flipped, kept, strict=True))
    assert any(flipped)
    assert any(kept)


def test_mean_file_and_empty_pixels(reader: Make, windows: Path, tmp_path: Path) -> None:
    """The mean's centre (8 - 6) // 2 = 1 is cut out; the empty rows above a window at the top stay 0, without mean.

    The window 0 1 3 4 with a pixel of context: centre (2, 3), half of a side 2 · 6 / 4 = 3: from -1 to 5, from 0 to 6.
    Of 7 columns one is outside: round(6 / 7) = 1 is empty, round(6 · 6 / 7) = 5 are filled.
    """
    mean = np.random.default_rng(0).random((3, 9, 8), dtype=np.float32)
    write_mean(tmp_path / "mean.binaryproto", mean)
    (windows.parent / "windows.txt").write_text("# 0\n0.png\n3\n12\n16\n1\n1 1 0 1 3 4\n")
    transform = f'crop_size: 6 mean_file: "{tmp_path}/mean.binaryproto"'
    data, _ = reader(text(windows, "fg_fraction: 1 context_pad: 1", transform, batch_size=1)).next()
    image = PIXELS[0, :, :, ::-1].transpose(2, 0, 1)
    wanted = np.zeros((3, 6, 6), np.float32)
    wanted[:, :, 1:] = resize(image[:, 0:7, 0:6], 6, 5) - mean[:, 1:7, 2:7]
    np.testing.assert_array_equal(data[0].numpy(), wanted)


@pytest.mark.parametrize("counts", [(8,), (5, 3), (2, 0, 4, 2)])
def test_together_the_batch_of_one_process(reader: Make, windows: Path, counts: tuple[int, ...]) -> None:
    check_together(reader, text(windows, "context_pad: 1", "crop_size: 5 mirror: true"), counts, 24)


def test_where_each_rank_has_a_batch_each_has_its_foreground(reader: Make, windows: Path) -> None:
    """``batch_scope: REPLICA``: together they have two batches of one process."""
    alone = reader(text(windows))
    ranks = [reader(text(windows), Share(start, 8, 16), 2) for start in (0, 8)]
    for data, label in (rank.next() for rank in ranks):
        expected = alone.next()
        assert [value > 0 for value in label.tolist()] == [False] * 6 + [True] * 2
        assert torch.equal(data, expected[0]) and torch.equal(label, expected[1])


def test_workers_and_cache_change_nothing_and_a_resumed_run_goes_on(reader: Make, windows: Path) -> None:
    words = "crop_size: 5 mirror: true num_workers: %d"
    alone = reader(text(windows, "context_pad: 1", words % 1))
    others = [
        reader(text(windows, f"context_pad: 1 cache_images: {cache}", words % count))
        for cache, count in (("true", 1), ("false", 3))
    ]
    batches = [alone.next() for _ in range(5)]
    for other in others:
        assert all(all(map(torch.equal, other.next(), batch)) for batch in batches)
        other.layer.position = 24
        assert all(map(torch.equal, other.next(), batches[3]))


def test_allocated_samples_are_those_of_one_process(reader: Make, windows: Path) -> None:
    alone, node = reader(text(windows, batch_size=8)), reader(text(windows, batch_size=8))
    node.layer.allocate([(8, 16)])
    alone.next()
    assert all(map(torch.equal, node.next(), alone.next()))


def test_a_window_outside_of_its_image(reader: Make, windows: Path) -> None:
    (windows.parent / "windows.txt").write_text("# 0\n0.png\n3\n12\n16\n1\n1 1 0 0 3 12\n")
    one = reader(text(windows, "fg_fraction: 1"))
    with pytest.raises(DataError, match=rf"{windows}:2: .*/0.png: the window 0 0 3 12 .* image of 16 × 12 pixels"):
        one.next()


@pytest.mark.parametrize(
    ("more", "transform", "message"),
    [
        ("batch_size: 0", "crop_size: 4", "window_data_param needs a batch_size of at least 1"),
        ("", "", "WindowData needs a crop_size, to which windows are warped"),
        ("context_pad: 2", "crop_size: 4", "context_pad 2 leaves nothing of a crop of 4 pixels"),
        ("fg_fraction: 1.5", "crop_size: 4", "fg_fraction is 1.5, not from 0 to 1"),
        ('crop_mode: "round"', "crop_size: 4", 'crop_mode is "warp" or "square", not "round"'),
        ("", "crop_size: 4 force_gray: true", "force_gray: WindowData reads all images as color"),
        ("", "crop_size: 4 mean_value: 1 mean_value: 2", "give mean_value once or 3 times, not 2 times"),
        ("", 'crop_size: 4 mean_value: 1 mean_file: "x"', "give mean_file or mean_value, not both"),
        ("", 'crop_size: 4 mean_file: "nope"', "nope: no such file"),
        ("", "crop_size: 4 scale: nan", "scale must be a number, not nan"),
        ("fg_threshold: 0.8", "crop_size: 4", "a batch needs 2 of them, but no window .* by fg_threshold 0.8 or more"),
        ("bg_threshold: 0.1", "crop_size: 4", "a batch needs 6 of them, but no window of .* than bg_threshold 0.1"),
        ('source: "nope"', "crop_size: 4", "nope: no such file"),
        ('source: ""', "crop_size: 4", "window_data_param needs a source"),
    ],
)
def test_wrong_texts_name_the_layer(windows: Path, more: str, transform: str, message: str) -> None:
    words = text(windows, more, transform)
    if more.startswith("batch_size"):
        words = words.replace("batch_size: 8", "")
    if more.startswith("source"):
        words = words.replace(f'source: "{windows}"', "")
    with pytest.raises(LayerError, match=f'layer "w": {message}'):
        graph_of(words)


def test_a_mean_image_that_is_too_small(windows: Path, tmp_path: Path) -> None:
    write_mean(tmp_path / "mean.binaryproto", np.zeros((3, 3, 8), np.float32))
    with pytest.raises(LayerError, match="the mean image is 3×3×8, the crop 3×4×4"):
        graph_of(text(windows, "", f'crop_size: {SIZE} mean_file: "{tmp_path}/mean.binaryproto"'))
