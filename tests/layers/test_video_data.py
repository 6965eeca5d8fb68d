"""VideoData: which frames a clip has, what is done to all of them alike, ranks, and what its text can get wrong."""

# ruff: noqa: F811  (reader is a fixture)

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from bpt.errors import DataError, LayerError, PrototxtError
from tests.golden_cases import graph_of
from tests.layers.ranks import shares_of, whole_of
from tests.layers.test_data_shares import Make, reader  # noqa: F401


@pytest.fixture
def clips(tmp_path: Path) -> Path:
    """Two videos of 7 frames of 5×6, frame n of video v all of 30 v + 4 n in blue, and 1 and 2 more in the others."""
    for video in range(2):
        (tmp_path / f"video {video}").mkdir()
        for frame in range(1, 8):
            value = 30 * video + 4 * frame
            pixels = np.broadcast_to(np.array((value + 2, value + 1, value), np.uint8), (5, 6, 3))
            Image.fromarray(np.ascontiguousarray(pixels)).save(
                tmp_path / f"video {video}" / f"{frame:06d}.jpg", quality=100, subsampling=0
            )
    (tmp_path / "list.txt").write_text("video 0 1 5\nvideo 1/ 2 6\n\nvideo 0 3 7\n")
    return tmp_path


def text(folder: Path, more: str = "new_length: 3 sampling_rate: 2 use_image: true", outer: str = "") -> str:
    return (
        f'layer {{ name: "v" type: "VideoData" top: "data" top: "label" {outer} video_data_param {{'
        f' source: "{folder}/list.txt" root_folder: "{folder}/" batch_size: 3 {more} }} }}'
    )


def test_clips(reader: Make, clips: Path) -> None:
    one = reader(text(clips))
    assert [edge.shape for edge in one.net.graph.edges] == [(3, 3, 3, 5, 6), (3,)]
    data, label = one.next()
    assert label.tolist() == [5, 6, 7]
    first = torch.tensor([[4.0, 12, 20], [38, 46, 54], [12, 20, 28]])
    wanted = first[:, None] + torch.arange(3)[:, None]  # blue first
    torch.testing.assert_close(data, wanted[..., None, None].expand_as(data), rtol=0, atol=2)  # JPEG's rounding


def test_all_frames_are_treated_alike(reader: Make, clips: Path) -> None:
    outer = "transform_param { crop_size: 4 mirror: true mean_value: 10 mean_value: 20 mean_value: 30 scale: 0.5 }"
    plain = reader(text(clips)).next()[0]
    data, _ = reader(text(clips, outer=outer)).next()
    assert data.shape == (3, 3, 3, 4, 4)
    mean = torch.tensor([10.0, 20, 30]).view(3, 1, 1, 1)
    torch.testing.assert_close(data, ((plain - mean) * 0.5)[..., :4, :4], rtol=0, atol=1)
    small = reader(text(clips, "new_length: 2 use_image: true new_height: 2 new_width: 3 is_color: false")).next()[0]
    assert small.shape == (3, 1, 2, 2, 3)


def test_ranks_have_shares_of_one_stream(reader: Make, clips: Path) -> None:
    shuffled = text(clips, "new_length: 2 use_image: true shuffle: true")
    whole = reader(shuffled).next()
    counts = (2, 0, 1)
    parts = [reader(shuffled, share).next() for share in shares_of(counts)]
    for index, top in enumerate(whole):
        torch.testing.assert_close(whole_of([part[index] for part in parts], counts), top)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ("new_length: 3", r"use_image: false is not there: .*ffmpeg -i v.avi v/%06d.jpg"),
        ("use_image: true", "needs new_length"),
        ("new_length: 3 use_image: true new_height: 4", "give new_height and new_width, or neither"),
        ("new_length: 9 use_image: true", r"list.txt:1: .*video 0/000008.jpg: no such file"),
        ("video_type: WEBCAM", "video_type is of SSD's VideoData"),
    ],
)
def test_mistakes(more: str, words: str, clips: Path) -> None:
    with pytest.raises((LayerError, PrototxtError, DataError), match=words):
        graph_of(text(clips, more))


def test_a_line_that_is_none(clips: Path) -> None:
    (clips / "list.txt").write_text("video 0 1 5\nvideo 1\n")
    with pytest.raises(LayerError, match=r'list.txt:2: "video 1" needs the folder of a video'):
        graph_of(text(clips))
    (clips / "list.txt").write_text("video 0 1 5\n")
    with pytest.raises(LayerError, match="mean_file is not for VideoData"):
        graph_of(text(clips, outer='transform_param { mean_file: "m" }'))
