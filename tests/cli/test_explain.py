"""``bpt explain`` at the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nibabel
import numpy as np
import pytest
from PIL import Image

import bpt as package
from bpt.apps.commands.job import Job
from bpt.base.errors import UsageError, UserError
from bpt.cli import explain
from bpt.cli.explain import INTENSITIES, numbers
from bpt.cli.main import make_parser
from bpt.config.proto import bpt_pb2 as pb
from bpt.train.state import save_weights
from tests.support.commands import Bpt
from tests.support.doubles.thread_ranks import run_ranks
from tests.support.explain_nets import SOFTMAX, conv, explained, input_layer, made, pool, scores, set_values

WORDS = ("explain", "--model=net.prototxt", "--weights=net.caffemodel", "--input=scan.nii.gz")
AFFINE = np.array([[-2, 0, 0, 10], [0, 2, 0, -10], [0, 0, 2, -10], [0, 0, 0, 1.0]])


def make_net(folder: Path, *shape: int) -> None:
    """Class 1 is for bright places, class 0 for dark ones: A = (x, -x), y = (mean A1, mean A0)."""
    net = explained(folder, input_layer(*shape), conv("c", "data", 2, 1), pool("c"), scores("pool", 2), SOFTMAX)
    core = made(net)
    channels = shape[1]
    set_values(core, "c", [1.0] * channels + [-1.0] * channels, [0.0, 0.0])
    set_values(core, "ip", [0.0, 1.0, 1.0, 0.0], [0.0, 0.0])
    save_weights(core, str(folder / "net.caffemodel"))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A net for scans of 4x4x4, and one such scan of random numbers with a bright voxel."""
    monkeypatch.chdir(tmp_path)
    make_net(tmp_path, 1, 1, 4, 4, 4)
    voxels = np.random.default_rng(7).normal(0, 1, (4, 4, 4)).astype(np.float32)
    voxels[1, 2, 3] = 9
    nibabel.save(nibabel.Nifti1Image(voxels, AFFINE), "scan.nii.gz")
    return tmp_path


def test_a_scan(bpt: Bpt, folder: Path) -> None:
    outcome = bpt(*WORDS, "--intensity=RAW", "--class=1")
    voxels = nibabel.Nifti1Image.from_filename(folder / "scan.nii.gz").get_fdata()
    mean = float(voxels.mean())
    p = 1 / (1 + np.exp(-2 * mean))
    assert (outcome.status, outcome.err) == (0, "")
    assert outcome.out.splitlines() == [
        "scan.nii.gz: 4×4×4 voxels of 2 × 2 × 2 mm; the net sees 4×4×4, intensity RAW (as the flags say)",
        'Class scores: blob "ip", the bottom of "prob", the last softmax',
        'Layer: c, blob "c" with 2 maps of 4×4×4; the last before the scores with 3 spatial axes',
        "",
        " class       score   probability",
        f"     0{-mean:>12.5g}{1 - p:>14.5f}" + "  predicted" * (mean < 0),
        f"     1{mean:>12.5g}{p:>14.5f}  " + "predicted, " * (mean > 0) + "explained",
        "",
        # 10 - 2·1, 2·2 - 10, 2·3 - 10
        "The map of class 1 is largest at voxel (1, 2, 3), at (8.0, -6.0, -4.0) mm",
        "Wrote scan_cam.nii.gz and scan_cam.png",
    ]
    # α = (1, 0) / 64: the map is the bright part of the scan.
    heat = nibabel.Nifti1Image.from_filename("scan_cam.nii.gz")
    np.testing.assert_allclose(heat.get_fdata(), np.maximum(voxels, 0) / 9, atol=1e-6)
    np.testing.assert_array_equal(heat.affine, AFFINE)
    with Image.open("scan_cam.png") as image:
        assert image.size[0] > 2 * image.size[1]


def test_names_of_classes(bpt: Bpt, folder: Path) -> None:
    """Those of classes.txt beside the network's text, or of --labels, which may name some classes only."""
    Path("classes.txt").write_text("dark\nvery bright\n")
    told = bpt(*WORDS, "--intensity=RAW", "--class=1").out.splitlines()
    assert told[4] == " class       score   probability  name"
    assert told[5].startswith("     0 ") and "  dark" in told[5] and told[5] == told[5].rstrip()
    assert told[6].startswith("     1 ") and "  very bright  " in told[6] and told[6].endswith("explained")
    assert told[8].startswith('The map of class 1 "very bright" is largest at voxel (1, 2, 3)')
    Path("map.prototxt").write_text('item { label: 0 name: "night" }')
    told = bpt(*WORDS, "--intensity=RAW", "--class=1", "--labels=map.prototxt").out.splitlines()
    assert "  night" in told[5] and told[6].endswith("explained")
    assert told[8].startswith("The map of class 1 is largest at voxel (1, 2, 3)")


def test_the_other_class_and_names(bpt: Bpt, folder: Path) -> None:
    outcome = bpt(*WORDS, "--class=0", "--layer=c", "--output=dark.nii.gz", "--intensity=RAW")
    assert outcome.status == 0
    assert outcome.out.splitlines()[2] == 'Layer: c, blob "c" with 2 maps of 4×4×4'
    assert outcome.out.endswith("Wrote dark.nii.gz and dark.png\n")
    voxels = nibabel.Nifti1Image.from_filename(folder / "scan.nii.gz").get_fdata()
    dark = np.maximum(-voxels, 0)
    np.testing.assert_allclose(
        nibabel.Nifti1Image.from_filename("dark.nii.gz").get_fdata(), dark / dark.max(), atol=1e-6
    )


@pytest.mark.usefixtures("folder")
def test_nothing_speaks_for_a_class(bpt: Bpt) -> None:
    outcome = bpt(*WORDS, "--class=0", "--mean=-100")
    assert outcome.status == 0
    assert "The layer finds no evidence for class 0: the map is 0 everywhere" in outcome.out
    assert not nibabel.Nifti1Image.from_filename("scan_cam.nii.gz").get_fdata().any()


def test_an_image(bpt: Bpt, folder: Path) -> None:
    make_net(folder, 1, 3, 8, 6)
    pixels = np.zeros((16, 12, 3), np.uint8)
    pixels[4:6, 8:10] = 250
    Image.fromarray(pixels).save("photo.png")
    outcome = bpt(*WORDS[:3], "--input=photo.png", "--scale=0.01")
    assert (outcome.status, outcome.err) == (0, "")
    lines = outcome.out.splitlines()
    assert lines[0] == "photo.png: 16×12 pixels; the net sees 8×6, intensity RAW, times 0.01 (as the flags say)"
    assert lines[-2] in {f"The map of class 1 is largest at row {y}, column {x}" for y in (4, 5) for x in (8, 9)}
    assert lines[-1] == "Wrote photo_cam.png"


def test_a_record_of_a_scan(bpt: Bpt, folder: Path) -> None:
    """It says an intensity, a mean and a scale; what it says of images is refused."""
    Path("p.prototxt").write_text("transform_param { mean_value: 2 scale: 3 }")
    outcome = bpt(*WORDS, "--preprocessing=p.prototxt", "--class=1")
    assert outcome.status == 0
    mean = 3 * (float(nibabel.Nifti1Image.from_filename(folder / "scan.nii.gz").get_fdata().mean()) - 2)
    assert f"     1{mean:>12.5g}" in outcome.out
    Path("net.caffemodel").rename("s_iter_3.caffemodel")
    Path("p.prototxt").rename("s_preprocessing.prototxt")
    beside = bpt(*WORDS[:2], "--weights=s_iter_3.caffemodel", WORDS[3], "--class=1")
    assert beside.out.replace("s_preprocessing", "p") == outcome.out
    Path("s_preprocessing.prototxt").write_text("intensity: MIN_MAX")
    recorded = bpt(*WORDS[:2], "--weights=s_iter_3.caffemodel", WORDS[3])
    assert "intensity MIN_MAX (as s_preprocessing.prototxt says)" in recorded.out
    by_flag = bpt(*WORDS[:2], "--weights=s_iter_3.caffemodel", WORDS[3], "--intensity=MIN_MAX")
    assert recorded.out.splitlines()[1:] == by_flag.out.splitlines()[1:]
    Path("p.prototxt").write_text("height: 4 width: 4")
    assert bpt(*WORDS[:2], "--weights=s_iter_3.caffemodel", WORDS[3], "--preprocessing=p.prototxt").status == 2


@pytest.mark.usefixtures("folder")
def test_training_on_scans_records_their_intensity(bpt: Bpt) -> None:
    """A net for use has no data layer: bpt explain once took Z_SCORE of scans that were trained on as MIN_MAX."""
    data = """layer { name: "data" type: "VolumeData" top: "data" top: "label"
      volume_data_param { source: "list.txt" batch_size: 1 shape: 4 intensity: MIN_MAX } }"""
    loss = 'layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }'
    body = conv("c", "data", 2, 1), pool("c"), scores("pool", 2)
    Path("train.prototxt").write_text("\n".join((data, *body, loss)))
    Path("list.txt").write_text("scan.nii.gz 1\n")
    Path("solver.prototxt").write_text(
        'net: "train.prototxt" base_lr: 0.1 max_iter: 1 lr_policy: "fixed" snapshot_prefix: "t"'
    )
    assert bpt("train", "--solver=solver.prototxt").status == 0
    told = {}
    for model in ("net", "train"):
        told[model] = bpt(
            "explain", f"--model={model}.prototxt", "--weights=t_iter_1.caffemodel", "--input=scan.nii.gz"
        )
    assert "intensity MIN_MAX (as t_preprocessing.prototxt says)" in told["net"].out
    assert 'intensity MIN_MAX (as layer "data" says)' in told["train"].out
    assert told["net"].out.splitlines()[3:] == told["train"].out.splitlines()[3:]
    refused = bpt("classify", "--model=net.prototxt", "--weights=t_iter_1.caffemodel", "scan.nii.gz")
    assert refused.status == 2
    preprocess: Any = package.load_module("net.prototxt", weights="t_iter_1.caffemodel").preprocess
    with pytest.raises(UserError, match="has 3 spatial axes; images have 2; bpt explain takes a scan"):
        preprocess("scan.nii.gz")


@pytest.mark.usefixtures("folder")
def test_weights_that_are_none_are_told_before_preprocessing(bpt: Bpt) -> None:
    make_net(Path(), 1, 3, 8, 8)
    Image.new("RGB", (8, 8)).save("photo.png")
    outcome = bpt(WORDS[0], WORDS[1], "--weights=net.prototxt", "--input=photo.png")
    assert outcome.status == 2
    assert outcome.error.startswith("net.prototxt: is a text file (prototxt)")
    assert "prepared" not in outcome.err


def test_a_cropped_image(bpt: Bpt, folder: Path) -> None:
    """The map lies where the net has seen the image, and is 0 where it has not."""
    make_net(folder, 1, 3, 8, 8)
    pixels = np.full((16, 24, 3), 100, np.uint8)
    pixels[:, 18:] = 255  # outside of the crop
    pixels[9, 9] = 255  # the crop is of rows 4 to 12, columns 8 to 16
    Image.fromarray(pixels).save("photo.png")
    Path("p.prototxt").write_text("height: 16 width: 24 transform_param { crop_size: 8 scale: 0.01 }")
    outcome = bpt(*WORDS[:3], "--input=photo.png", "--preprocessing=p.prototxt")
    assert (outcome.status, outcome.err) == (0, "")
    assert "The map of class 1 is largest at row 9, column 9" in outcome.out.splitlines()


@pytest.mark.usefixtures("folder")
def test_layers_without_weights_are_named(bpt: Bpt) -> None:
    text = Path("net.prototxt").read_text()
    Path("net.prototxt").write_text(text.replace('name: "c"', 'name: "other"'))
    outcome = bpt(*WORDS, "--allow-random")
    assert outcome.status == 0
    assert "Layer other is in none of the weights; it is as its fillers made it" in outcome.err
    assert bpt(*WORDS).status == 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--model=", *WORDS[2:]], "bpt explain needs --model: the network to explain"),
        (["--weights=", *WORDS[1:2]], "bpt explain needs --weights: the trained model"),
        ([*WORDS[1:3]], "bpt explain needs --input: the scan or the image"),
        ([*WORDS[1:], "--class=-1"], '--class: takes a whole number of at least 0, found "-1"'),
        ([*WORDS[1:], "--class=2"], "there is no class 2; the net has 2, from 0 to 1"),
        ([*WORDS[1:], "--layer=conv"], '--layer "conv": no layer or blob has this name'),
        ([*WORDS[1:], "--layer=pol"], '--layer "pol": no layer or blob has this name; did you mean "pool"?'),
        ([*WORDS[1:], "--intensity=LOUD"], "--intensity: invalid choice: 'LOUD'"),
        ([*WORDS[1:], "--scale=big"], '--scale: takes a number, found "big"'),
        ([*WORDS[1:], "--mean=1,nan"], '--mean: takes a number, found "nan"'),
        ([*WORDS[1:], "--mean=1,2"], "2 means for the 1 channels of scan.nii.gz; give one, or one each"),
        ([*WORDS[1:], "--preprocessing=p", "--scale=2"], "--preprocessing contradicts --intensity, --mean and --scale"),
        ([*WORDS[1:], "--preprocessing=p.prototxt"], "p.prototxt: no such file"),
        ([*WORDS[1:], "--output=scan"], '--output: "scan.nii.gz" is the input itself; give another prefix'),
        ([*WORDS[1:], "--output=no/x"], '--output: there is no folder "no"'),
        ([*WORDS[1:], "--input=scan.nii"], 'scan.nii: no such file; did you mean "scan.nii.gz"?'),
        ([*WORDS[1:], "--input=net.prototxt"], 'net.prototxt: is not what the net takes: its input "data"'),
        ([*WORDS[1:], "--weights=none"], "none"),
        ([*WORDS[1:], "--model=none"], "none"),
    ],
)
@pytest.mark.usefixtures("folder")
def test_mistakes(bpt: Bpt, words: list[str], message: str) -> None:
    outcome = bpt("explain", *words)
    assert outcome.status == 2
    assert outcome.error.startswith(message)
    assert outcome.out == ""
    assert not list(Path().glob("*_cam*"))


def test_numbers_that_are_not_finite(bpt: Bpt, folder: Path) -> None:
    net = explained(folder, input_layer(1, 1, 4, 4, 4), conv("c", "data", 2, 1), pool("c"), scores("pool", 2))
    core = made(net)
    set_values(core, "c", [float("nan"), 0.0], [0.0, 0.0])
    save_weights(core, "net.caffemodel")
    outcome = bpt(*WORDS)
    assert outcome.status == 1
    assert outcome.error.startswith('blob "ip": the class scores are not finite')


def test_flags() -> None:
    assert list(INTENSITIES) == pb.VolumeDataParameter.Intensity.keys()
    assert numbers("1,-2.5") == (1.0, -2.5)


def test_on_one_process_only() -> None:
    arguments = make_parser().parse_args([*WORDS])

    def run(comm: object) -> str:
        with pytest.raises(UsageError) as error:
            explain.run(arguments, Job.enter(comm))  # type: ignore[arg-type]
        return str(error.value)

    assert set(run_ranks(2, run)) == {"bpt explain runs on one process; leave mpirun out"}
