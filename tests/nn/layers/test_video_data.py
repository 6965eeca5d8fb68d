"""VideoData: which frames a clip has, what is done to all of them alike, ranks, and what its text can get wrong."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from bpt.base.errors import DataError, LayerError, PrototxtError
from bpt.config.proto.blobs import array_to_blob
from tests.support.data_readers import Make
from tests.support.golden_cases import graph_of
from tests.support.layer_ranks import shares_of, whole_of


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
    with pytest.raises(LayerError, match=r'list.txt:2: "video 1" needs a video, the number'):
        graph_of(text(clips))


@pytest.mark.parametrize("of_clips", [True, False])
def test_mean_files(reader: Make, clips: Path, of_clips: bool) -> None:
    """The mean of clips, C3D's, or an image for all frames."""
    shape = (1, 3, 2, 5, 6) if of_clips else (1, 3, 5, 6)
    mean = np.random.default_rng(0).random(shape, dtype=np.float32)
    (clips / "mean.binaryproto").write_bytes(array_to_blob(mean).SerializeToString())
    more, outer = "new_length: 2 use_image: true", f'transform_param {{ mean_file: "{clips}/mean.binaryproto" }}'
    plain, data = reader(text(clips, more)).next()[0], reader(text(clips, more, outer)).next()[0]
    torch.testing.assert_close(plain - data, torch.from_numpy(mean if of_clips else mean[:, :, None]).expand_as(data))
    with pytest.raises(LayerError, match=r"the mean image is .*, the image 9×4×4: compute"):
        graph_of(text(clips, "new_length: 3 use_image: true new_height: 4 new_width: 4", outer))


def test_files_of_videos(reader: Make, clips: Path) -> None:
    """Frames count from 0; without loss they are the pixels that were put in."""
    av = pytest.importorskip("av")
    pixels = np.random.default_rng(1).integers(0, 256, (6, 16, 24, 3), dtype=np.uint8)
    with av.open(str(clips / "v 1.avi"), "w") as container:
        stream = container.add_stream("ffv1", rate=5)
        stream.width, stream.height, stream.pix_fmt = 24, 16, "bgr0"
        for image in pixels:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(image, format="bgr24")))
        container.mux(stream.encode(None))
    (clips / "list.txt").write_text("v 1.avi 1 5\nv 1.avi 0 6\nv 1.avi 3 7\n")
    data, label = reader(text(clips, "new_length: 2 sampling_rate: 2")).next()
    assert label.tolist() == [5, 6, 7]
    wanted = pixels[[[1, 3], [0, 2], [3, 5]]].transpose(0, 4, 1, 2, 3)
    np.testing.assert_array_equal(data.numpy(), wanted)
    assert reader(text(clips, "new_length: 2 is_color: false")).next()[0].shape == (3, 1, 2, 16, 24)
    for listed, words in (
        ("v 1.avi 5 0", r"list.txt:1: .*v 1.avi: has 6 frames, which are counted from 0; 6 is asked for"),
        ("none.avi 0 0", r"list.txt:1: .*none.avi: no such file"),
        ("list.txt 0 0", r"list.txt:1: .*list.txt: is no video that can be decoded: "),
    ):
        (clips / "list.txt").write_text(listed)
        with pytest.raises(LayerError, match=words):
            graph_of(text(clips, "new_length: 2"))


def test_without_the_package_that_decodes(clips: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "av", None)
    with pytest.raises(LayerError, match=r"files of videos need the package av: pip install 'bpt\[video\]'; or write"):
        graph_of(text(clips, "new_length: 2"))
