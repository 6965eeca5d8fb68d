"""Augmentation: each piece by hand or against another implementation, and draws that do not depend on the batch."""

from __future__ import annotations

import colorsys
import math
from pathlib import Path

import numpy as np
import pytest
from google.protobuf import text_format

from bpt.base.errors import DataError, LayerError, UserError
from bpt.config.proto import bpt_pb2 as pb
from bpt.data.augment import Augment, turned
from bpt.data.batches import ImageBatches
from bpt.data.colour import jitter, turned_hue
from bpt.data.lmdb_file import LmdbSource
from bpt.data.opencv_resize import resize
from bpt.data.sampler import SampleDraw, Sampler
from bpt.data.source import Sample
from bpt.data.transform import Transform
from bpt.graph.layer_specs import layer_specs
from bpt.graph.share import whole_batch
from bpt.nn.layers.transform_param import transform_of
from tests.support.paths import GOLDEN
from tests.support.spread_runs import Saved, train

DIGITS = GOLDEN / "lmdb" / "digits_train_lmdb"


def augment(text: str, seed: int = 1) -> Augment:
    return Augment(text_format.Parse(text, pb.AugmentParameter()), seed)


def draw(samples: int, epoch: int = 0) -> SampleDraw:
    return SampleDraw(np.full(samples, epoch), np.arange(samples))


def image(*shape: int) -> np.ndarray:
    return np.random.default_rng(1).integers(0, 256, shape, np.uint8)


def test_turning() -> None:
    x = image(3, 5, 5)
    np.testing.assert_array_equal(turned(x, 0), x)
    np.testing.assert_array_equal(turned(x, math.pi), x[:, ::-1, ::-1])
    np.testing.assert_array_equal(turned(x, math.pi / 2), np.rot90(x, 1, (1, 2)))


def test_colours_by_hand_and_by_colorsys() -> None:
    """With draws of 3/4 a factor is 1 + half of its setting."""
    x = np.array([[[10, 200]], [[20, 40]], [[30, 60]]], np.uint8)  # blue, green, red of two pixels
    half = (0.75, 0.75, 0.75, 0.75)
    np.testing.assert_array_equal(jitter(x, 0.4, 0, 0, 0, half), [[[12, 240]], [[24, 48]], [[36, 72]]])
    gray = [0.114 * b + 0.587 * g + 0.299 * r for b, g, r in ((10, 20, 30), (200, 40, 60))]
    mean = sum(gray) / 2
    wanted = (mean + 1.1 * (x - mean)).clip(0, 255).round()
    np.testing.assert_array_equal(jitter(x, 0, 0.2, 0, 0, half), wanted)
    wanted = (gray + 1.5 * (x - np.array(gray))).clip(0, 255).round()
    np.testing.assert_array_equal(jitter(x, 0, 0, 1, 0, half), wanted)
    pixels = image(3, 4, 4).astype(np.float32)
    for turn in (0.1, -0.4):
        ours = turned_hue(pixels, turn)
        for blue, green, red, *found in np.concatenate([pixels, ours]).reshape(6, -1).T / 255:
            h, s, v = colorsys.rgb_to_hsv(red, green, blue)
            np.testing.assert_allclose(found[::-1], colorsys.hsv_to_rgb((h + turn) % 1, s, v), atol=1e-5)
    gray_image = image(1, 3, 3)
    assert jitter(gray_image, 0, 0, 0.5, 0.5, half) is gray_image


def test_a_window_is_cut_out_and_resized() -> None:
    """Each result is what some window of the image, of an allowed area and ratio, is resized to."""
    x = image(1, 8, 8)
    one = augment("resized_crop: 4 min_area: 0.2 max_area: 0.5 min_ratio: 0.5 max_ratio: 2")
    assert one.shape((1, 8, 8)) == (1, 4, 4)
    windows = {
        resize(x[:, t : t + h, l : l + w], 4, 4).tobytes(): (h, w)
        for h in range(1, 9) for w in range(1, 9) for t in range(9 - h) for l in range(9 - w)
    }  # fmt: skip
    found = [windows[each.image.tobytes()] for each in one.images([Sample("", x, 0.0)] * 60, draw(60))]
    assert len(set(found)) > 5
    for height, width in found:
        assert 0.1 < height * width / 64 < 0.65  # rounded to whole pixels
        assert 0.4 < width / height < 2.5


def test_erasing_sets_a_window_to_the_mean() -> None:
    data = np.ones((200, 2, 20, 20), np.float32)
    augment("erasing: 0.5 min_erase_area: 0.1 max_erase_area: 0.3").erase(data, draw(200))
    parts = (data[:, 0] == 0).mean((1, 2))
    assert (data[:, 0] == data[:, 1]).all()
    assert 70 < (parts > 0).sum() < 130
    assert parts[parts > 0].min() > 0.06
    assert parts.max() < 0.36


@pytest.mark.parametrize(("alpha", "variance"), [(0.2, 0.1786), (1.0, 1 / 12), (2.0, 0.05)])
def test_parts_are_of_a_beta_distribution(alpha: float, variance: float) -> None:
    """Beta(α, α) has the mean 1/2 and the variance 1 / (4 (2 α + 1))."""
    data, others = np.ones((4000, 1, 1, 1), np.float32), np.zeros((4000, 1, 1, 1), np.float32)
    kept = augment(f"mixup: {alpha}").mix(data, others, draw(4000))
    np.testing.assert_allclose(data.ravel(), kept, rtol=1e-6)
    assert kept.mean() == pytest.approx(0.5, abs=0.02)
    assert kept.var() == pytest.approx(variance, rel=0.1)


def test_a_box_of_the_other_image() -> None:
    data, others = np.ones((50, 2, 9, 11), np.float32), np.zeros((50, 2, 9, 11), np.float32)
    both = augment("mixup: 1 cutmix: 1 num_classes: 3")
    kept = both.mix(data, others, draw(50))
    np.testing.assert_allclose(data.mean((1, 2, 3)), kept, rtol=1e-5)
    boxes = [set(np.unique(each)) <= {0.0, 1.0} for each in data]
    assert 10 < sum(boxes) < 40
    own, other = [Sample("a", data[0], 2.0)], [Sample("b", data[0], 0.0)]
    np.testing.assert_allclose(both.labels(own, other, np.array([0.75])), [[0.25, 0, 0.75]])
    np.testing.assert_allclose(both.labels(own, own, np.array([0.75])), [[0, 0, 1]])
    with pytest.raises(DataError, match='record "c": label 3 is outside'):
        both.labels(own, [Sample("c", data[0], 3.0)], np.array([0.5]))


ALL = (
    "resized_crop: 20 mirror_vertical: true rotation: 20 brightness: 0.3 contrast: 0.3 erasing: 0.5 "
    "mixup: 0.4 cutmix: 1 num_classes: 10"
)


def test_shares_of_a_batch_are_its_rows() -> None:
    """Partners may be anywhere in the data set, so a rank needs no other one."""

    def batch(part: int, parts: int) -> list[np.ndarray]:
        source = LmdbSource(str(DIGITS))
        sampler = Sampler([len(source)], shuffle=True, seed=3)
        text = "crop_size: 18 mirror: true"
        transform = Transform(text_format.Parse(text, pb.TransformationParameter()), pb.TRAIN, 5)
        batches = ImageBatches(source, sampler, transform, whole_batch(7).part(part, parts), augment=augment(ALL))
        try:
            return [top.numpy() for top in batches(14)]
        finally:
            batches.close()

    data, label = batch(0, 1)
    assert data.shape == (7, 1, 18, 18)
    np.testing.assert_allclose(label.sum(1), 1, rtol=1e-6)
    assert (label.max(1) < 1).any()
    for parts in (2, 3, 4):
        pieces = [batch(part, parts) for part in range(parts)]
        np.testing.assert_array_equal(np.concatenate([piece[0] for piece in pieces]), data)
        np.testing.assert_array_equal(np.concatenate([piece[1] for piece in pieces]), label)


def test_mixed_data_train_alike_on_many_ranks_and_go_on_bit_for_bit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.prototxt").write_text(f"""
        layer {{ name: "data" type: "Data" top: "data" top: "label" data_param {{ source: "{DIGITS}" batch_size: 8
            backend: LMDB shuffle: true }} transform_param {{ scale: 0.004 augment_param {{ {ALL} }} }} }}
        layer {{ name: "ip" type: "InnerProduct" bottom: "data" top: "ip"
            inner_product_param {{ num_output: 10 weight_filler {{ type: "xavier" }} }} }}
        layer {{ name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" }}""")
    (tmp_path / "solver.prototxt").write_text(
        'net: "net.prototxt" base_lr: 0.1 lr_policy: "fixed" max_iter: 4 snapshot: 2 snapshot_prefix: "small" '
        "random_seed: 3 engine: CONTIGUOUS precision: FLOAT64"
    )
    train(1)
    alone = Saved.read(4)
    for ranks in (2, 4):
        train(ranks)
        Saved.read(4).check(alone, 1e-5)
    single = "precision: FLOAT32"
    train(1, single)
    whole = Path("small_iter_4.caffemodel").read_bytes()
    train(1, single, resume="small_iter_2.solverstate")
    assert Path("small_iter_4.caffemodel").read_bytes() == whole


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rotation: 200", "rotation is 200; it must be from 0 to 180"),
        ("mixup: 0.2", "set num_classes"),
        ("min_area: 0.5 max_area: 0.4", "min_area is 0.5 and max_area 0.4"),
    ],
)
def test_refusals(text: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        augment(text).check()


def test_what_cannot_be_augmented() -> None:
    with pytest.raises(DataError, match='record "a" has floating-point numbers'):
        augment("rotation: 3").images([Sample("a", np.zeros((1, 2, 2), np.float32), 0.0)], draw(1))
    net = 'layer { name: "data" type: "WindowData" top: "x" transform_param { augment_param { rotation: 3 } } }'
    (spec,) = layer_specs(text_format.Parse(net, pb.NetParameter()))
    with pytest.raises(LayerError, match="augment_param is for Data and ImageData, not WindowData"):
        transform_of(spec)
