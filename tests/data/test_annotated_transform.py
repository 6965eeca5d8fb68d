"""Objects' boxes go where their pixels go, and what is drawn depends on the sample and its epoch only."""

from __future__ import annotations

import colorsys

import numpy as np
import pytest
from google.protobuf import text_format

from bpt.base.errors import UserError
from bpt.config.proto import bpt_pb2 as pb
from bpt.data.annotated import AnnotatedSample
from bpt.data.annotated_transform import AnnotatedTransform
from bpt.data.batch_samplers import sampled_part
from bpt.data.distortion import Distortion
from bpt.data.noise import Noise
from bpt.data.object_boxes import cut
from bpt.data.resizing import Resizing
from bpt.data.sample_draws import SampleDraws
from bpt.data.sampler import SampleDraw

HEIGHT, WIDTH = 40, 60
TOP, LEFT, BOTTOM, RIGHT = 12, 18, 30, 48  # of an object, in pixels


def sample() -> AnnotatedSample:
    """A white object on black ground."""
    image = np.zeros((3, HEIGHT, WIDTH), np.uint8)
    image[:, TOP:BOTTOM, LEFT:RIGHT] = 255
    box = (LEFT / WIDTH, TOP / HEIGHT, RIGHT / WIDTH, BOTTOM / HEIGHT)
    return AnnotatedSample("0", image, 0, np.array([(2, 0, *box, 0)], np.float32))


def transform(text: str, samplers: str = "", phase: int = pb.TRAIN) -> AnnotatedTransform:
    param = text_format.Parse(text, pb.TransformationParameter())
    own = text_format.Parse(samplers, pb.AnnotatedDataParameter()).batch_sampler
    return AnnotatedTransform(param, phase, own, seed=4)


def run(made: AnnotatedTransform, index: int, epoch: int = 0) -> tuple[np.ndarray, np.ndarray]:
    prepared, objects = made.prepared(sample(), epoch, index)
    out = np.empty((1, *made.last.infer(prepared.image.shape)), np.float32)
    (placed,) = made([prepared], [objects], SampleDraw(np.array([epoch]), np.array([index])), out)
    return out[0], placed


EXPAND, SAMPLER = "expand_param { max_expand_ratio: 3 }", "batch_sampler { sampler { min_scale: 0.4 max_scale: 0.9 } }"
RESIZE = "resize_param {{ height: {} width: {} resize_mode: {} }}"


@pytest.mark.parametrize(
    ("text", "samplers"),
    [
        ("mirror: true crop_h: 20 crop_w: 36", ""),
        (EXPAND, ""),
        (RESIZE.format(90, 50, "WARP"), ""),
        (RESIZE.format(90, 90, "FIT_LARGE_SIZE_AND_PAD") + " mirror: true", ""),
        (RESIZE.format(50, 100, "FIT_SMALL_SIZE") + " crop_size: 45", ""),
        ("", SAMPLER),
        (f"mirror: true {EXPAND} {RESIZE.format(80, 80, 'WARP')} crop_size: 70", SAMPLER),
    ],
)
def test_boxes_follow_the_pixels(text: str, samplers: str) -> None:
    made, seen = transform(text, samplers), 0
    slack = 6.1 if samplers and RESIZE[:12] in text else 2.1  # a pixel of the part that is cut out becomes several
    for index in range(12):
        image, objects = run(made, index)
        bright = image[0] > 127
        if not len(objects):
            assert bright.mean() < 0.05
            continue
        seen += 1
        rows, columns = np.flatnonzero(bright.any(1)), np.flatnonzero(bright.any(0))
        height, width = bright.shape
        found = (columns[0] / width, rows[0] / height, (columns[-1] + 1) / width, (rows[-1] + 1) / height)
        np.testing.assert_allclose(objects[0, 2:6], found, atol=slack / min(height, width))
        assert objects[0, 0] == 2
    assert seen >= 6


def test_draws_depend_on_sample_and_epoch() -> None:
    text = f"mirror: true {EXPAND} {RESIZE.format(32, 32, 'WARP')} distort_param {{ brightness_prob: 1 "
    text += "brightness_delta: 32 }"
    made, again = transform(text, SAMPLER), transform(text, SAMPLER)
    first = [run(made, index, epoch) for index in (1, 2) for epoch in (0, 1)]
    assert len({image.tobytes() for image, _ in first}) == 4
    for (image, objects), (index, epoch) in zip(first[::-1], ((2, 1), (2, 0), (1, 1), (1, 0)), strict=True):
        other, theirs = run(again, index, epoch)
        assert np.array_equal(image, other)
        assert np.array_equal(objects, theirs)


@pytest.mark.parametrize(
    ("emit", "kept"), [("", 3), ("emit_type: CENTER", 2), ("emit_type: MIN_OVERLAP emit_overlap: 0.9", 1)]
)
def test_which_objects_stay(emit: str, kept: int) -> None:
    boxes = [(0.0, 0.0, 0.4, 1.0), (0.1, 0.0, 0.6, 1.0), (0.3, 0.0, 0.9, 1.0), (0.5, 0.0, 0.9, 1.0)]
    objects = np.array([(label, 0, *box, 0) for label, box in enumerate(boxes)], np.float32)
    constraint = text_format.Parse(emit, pb.EmitConstraint()) if emit else None
    seen = cut(objects, np.array((0, 0, 0.5, 1), np.float32), constraint)
    assert len(seen) == kept
    np.testing.assert_allclose(seen[0, 2:6], (0, 0, 0.8, 1), rtol=1e-6)


@pytest.mark.parametrize("limit", ["min_jaccard_overlap: 0.3", "min_object_coverage: 0.8", "max_sample_coverage: 0.2"])
def test_parts_keep_to_the_limits(limit: str) -> None:
    sampler = "sampler { min_scale: 0.3 min_aspect_ratio: 0.5 max_aspect_ratio: 2 }"
    samplers = f"batch_sampler {{ max_trials: 50 max_sample: 1 {sampler} sample_constraint {{ {limit} }} }}"
    own = text_format.Parse(samplers, pb.AnnotatedDataParameter()).batch_sampler
    box, found = sample().objects[0, 2:6].astype(float), 0
    for index in range(20):
        part = sampled_part(own, sample().objects, SampleDraws(1, 0, index))
        if part is None:
            continue
        found += 1
        assert 0 <= part.min() <= part.max() <= 1
        assert 0.5 - 1e-5 <= (part[2] - part[0]) / (part[3] - part[1]) <= 2 + 1e-5
        common = np.prod((np.minimum(part[2:], box[2:]) - np.maximum(part[:2], box[:2])).clip(0))
        area, own_area = np.prod(part[2:] - part[:2]), np.prod(box[2:] - box[:2])
        value = {"jaccard": common / (area + own_area - common), "object": common / own_area, "sample": common / area}
        name, bound = limit.split(": ")
        measured = value[name.split("_")[1]]
        assert measured >= float(bound) if name.startswith("min") else measured <= float(bound)
    assert found >= 10


def test_resizing_by_hand() -> None:
    image = np.arange(2 * 4, dtype=np.uint8).reshape(1, 2, 4)

    def resized(text: str) -> np.ndarray:
        param = text_format.Parse(text, pb.ResizeParameter())
        return Resizing(param)(image, np.empty((0, 7), np.float32), SampleDraws(0, 0, 0))[0]

    assert resized("height: 4 width: 4 interp_mode: NEAREST")[0].tolist() == [[0, 1, 2, 3]] * 2 + [[4, 5, 6, 7]] * 2
    padded = resized("height: 4 width: 4 resize_mode: FIT_LARGE_SIZE_AND_PAD pad_value: 9")
    assert padded[0].tolist() == [[9] * 4, [0, 1, 2, 3], [4, 5, 6, 7], [9] * 4]
    nearest = resized("height: 4 width: 4 resize_mode: FIT_LARGE_SIZE_AND_PAD pad_mode: REPEAT_NEAREST")
    assert nearest[0].tolist() == [[0, 1, 2, 3]] * 2 + [[4, 5, 6, 7]] * 2
    assert resized("height: 4 width: 5 resize_mode: FIT_SMALL_SIZE").shape == (1, 4, 8)
    assert resized("height: 1 width: 2 interp_mode: AREA")[0].tolist() == [[3, 5]]  # of 0 1 4 5 and 2 3 6 7: 2.5, 4.5
    assert np.array_equal(resized("height: 9 width: 9 prob: 0"), image)
    flat = np.full((1, 5, 5), 77, np.uint8)
    for mode in ("CUBIC", "LANCZOS4", "AREA", "LINEAR"):
        param = text_format.Parse(f"height: 8 width: 3 interp_mode: {mode}", pb.ResizeParameter())
        assert (Resizing(param)(flat, np.empty((0, 7), np.float32), SampleDraws(0, 0, 0))[0] == 77).all()


def test_hue_and_saturation_against_the_standard_library() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (3, 5, 6), dtype=np.uint8)
    text = "hue_prob: 1 hue_delta: 40 saturation_prob: 1 saturation_lower: 0.5 saturation_upper: 0.5"
    found = Distortion(text_format.Parse(text, pb.DistortionParameter()))(pixels, SampleDraws(3, 0, 0))
    draws = SampleDraws(3, 0, 0)
    for _ in range(4):  # the order, brightness, contrast, saturation
        draws.uniform()
    draws.uniform()  # the saturation's factor
    assert draws.happens(1)
    turned = draws.uniform(-1, 1) * 40 / 180
    for blue, green, red, *ours in np.concatenate((pixels, found)).reshape(6, -1).T.tolist():
        hue, saturation, value = colorsys.rgb_to_hsv(red / 255, green / 255, blue / 255)
        wanted = colorsys.hsv_to_rgb((hue + turned) % 1, saturation / 2, value)
        np.testing.assert_allclose(ours[::-1], np.array(wanted) * 255, atol=0.51)


def test_brightness_and_contrast_end_at_white() -> None:
    pixels = np.full((3, 2, 2), 200, np.uint8)
    text = "contrast_prob: 1 contrast_lower: 1.5 contrast_upper: 1.5 random_order_prob: 1"
    assert (Distortion(text_format.Parse(text, pb.DistortionParameter()))(pixels, SampleDraws(0, 0, 0)) == 255).all()
    bright = {
        int(
            Distortion(pb.DistortionParameter(brightness_prob=1, brightness_delta=9))(pixels, SampleDraws(0, 0, i))[
                0, 0, 0
            ]
        )
        for i in range(20)
    }
    assert min(bright) >= 191 and max(bright) <= 209 and len(bright) > 5


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("inverse: true", [[255, 155], [55, 0]]),
        ("posterize: true", [[32, 96], [224, 224]]),
        ("erode: true", [[0, 0], [0, 100]]),
        ("saltpepper: true saltpepper_param { fraction: 0 value: 7 }", [[0, 100], [200, 255]]),
        ("inverse: true prob: 0", [[0, 100], [200, 255]]),
        ("hist_eq: true", [[0, 85], [170, 255]]),
    ],
)
def test_noise_by_hand(text: str, wanted: list[list[int]]) -> None:
    image = np.array([[[0, 100], [200, 255]]], np.uint8)
    noise = Noise(text_format.Parse(text, pb.NoiseParameter()))
    assert noise(image, SampleDraws(0, 0, 0))[0].tolist() == wanted


def test_other_noise() -> None:
    image = np.random.default_rng(0).integers(0, 256, (3, 24, 24), dtype=np.uint8)

    def noisy(text: str) -> np.ndarray:
        return Noise(text_format.Parse(text, pb.NoiseParameter()))(image, SampleDraws(0, 0, 0))

    gray = noisy("decolorize: true")
    assert (gray == gray[:1]).all()
    np.testing.assert_allclose(gray[0], 0.114 * image[0] + 0.587 * image[1] + 0.299 * image[2], atol=0.51)
    assert noisy("gauss_blur: true").std() < image.std() / 2
    image = np.repeat(np.arange(24, dtype=np.uint8)[None, :, None] * 9, 3, 0).repeat(24, 2)
    jpeg = noisy("jpeg: 20").astype(int)
    assert 0 < np.abs(jpeg - image).mean() < 12
    salted = noisy("saltpepper: true saltpepper_param { fraction: 0.25 value: 3 }")
    assert 0.15 < (salted == 3).all(0).mean() < 0.3


@pytest.mark.parametrize(
    ("text", "samplers", "message"),
    [
        ("resize_param { height: 3 }", "", "resize_param needs height and width"),
        ("expand_param { max_expand_ratio: 0.5 }", "", "expand_param: max_expand_ratio 0.5 must be at least 1"),
        ("distort_param { contrast_prob: 1 contrast_lower: 2 contrast_upper: 1 }", "",
         "distort_param: 0 ≤ contrast_lower 2 ≤ contrast_upper 1 does not hold"),
        ("distort_param { hue_delta: -1 }", "", "distort_param: hue_delta must be at least 0"),
        ("", "batch_sampler { sampler { min_scale: 0 } }", "sampler: 0 < min_scale 0 ≤ max_scale 1 ≤ 1 does not hold"),
        ("", "batch_sampler { sampler { min_aspect_ratio: 2 } }",
         "sampler: 0 < min_aspect_ratio 2 ≤ max_aspect_ratio 1 does not hold"),
        ("crop_h: 3", "", "give crop_size, or crop_h and crop_w"),
    ],
)  # fmt: skip
def test_settings_that_say_nothing(text: str, samplers: str, message: str) -> None:
    with pytest.raises(UserError) as caught:
        transform(text, samplers)
    assert str(caught.value) == message
