"""The scripts that fetch and make data sets, on small files of the same format. No network."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from bpt.data.lmdb_file import LmdbSource
from scripts import make_digits, make_synthetic
from tests.scripts.written_files import files
from tests.support.paths import ROOT


def contents(path: Path) -> tuple[np.ndarray, list[float]]:
    """The images and labels of an LMDB."""
    source = LmdbSource(str(path))
    samples = [source.read(index) for index in range(len(source))]
    source.close()
    return np.stack([sample.image for sample in samples]), [sample.label for sample in samples]


def test_digits_are_split_in_proportion_and_written_once(tmp_path: Path) -> None:
    make_digits.write(tmp_path)
    train, test = (contents(tmp_path / name) for name in ("train_lmdb", "test_lmdb"))
    assert (train[0].shape, test[0].shape) == ((1437, 1, 32, 32), (360, 1, 32, 32))
    of_digit = np.bincount(np.array(train[1] + test[1], np.int64))
    assert of_digit.tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]  # as scikit-learn says
    assert np.abs(np.bincount(np.array(test[1], np.int64)) - of_digit / 5).max() < 1
    assert not {image.tobytes() for image in train[0]} & {image.tobytes() for image in test[0]}
    before = files(tmp_path)
    shutil.rmtree(tmp_path / "test_lmdb")
    (tmp_path / "three.png").unlink()
    make_digits.write(tmp_path)
    assert files(tmp_path) == before
    for digit, name in ((7, "seven.png"), (3, "three.png")):
        with Image.open(tmp_path / name) as picture:
            np.testing.assert_array_equal(np.asarray(picture), test[0][test[1].index(digit), 0])


def test_enlarging_is_pillows() -> None:
    small = np.random.default_rng(0).integers(0, 17, (6, 8, 8)).astype(np.float64)
    for image, large in zip(small, make_digits.enlarge(small), strict=True):
        pillow = Image.fromarray((image * 255 / 16).astype(np.float32)).resize((32, 32), Image.Resampling.LANCZOS)
        np.testing.assert_allclose(large, np.asarray(pillow).clip(0, 255), atol=0.501)


def synthetic(folder: Path, *more: str) -> dict[str, bytes]:
    command = [
        sys.executable,
        str(ROOT / "scripts/make_synthetic.py"),
        str(folder),
        "--shape",
        "2x16x24",
        "--train",
        "60",
    ]
    subprocess.run([*command, "--test", "30", "--classes", "3", *more], check=True, capture_output=True)
    return files(folder)


@pytest.mark.slow
def test_synthetic_images_can_be_learned_and_are_the_same_every_time(tmp_path: Path) -> None:
    first = synthetic(tmp_path / "a")
    assert synthetic(tmp_path / "b") == first
    assert synthetic(tmp_path / "a", "--seed", "1", "--overwrite") != first
    train, test = (contents(tmp_path / "b" / name) for name in ("train_lmdb", "test_lmdb"))
    assert (train[0].shape, test[0].shape) == ((60, 2, 16, 24), (30, 2, 16, 24))
    labels = np.array(train[1])
    assert np.bincount(labels.astype(np.int64)).tolist() == [20, 20, 20]
    # The nearest mean image of a class tells most test images; chance would be a third.
    means = np.stack([train[0][labels == label].mean(axis=0) for label in range(3)])
    distances = ((test[0][:, np.newaxis] - means) ** 2).sum(axis=(2, 3, 4))
    assert (distances.argmin(axis=1) == np.array(test[1])).mean() > 0.7


def test_a_script_that_would_overwrite_ends_with_an_error(tmp_path: Path) -> None:
    (tmp_path / "train_lmdb").mkdir()
    assert make_synthetic.shape_of("1x2x3") == (1, 2, 3)
    command = [sys.executable, str(ROOT / "scripts/make_synthetic.py"), str(tmp_path), "--train", "1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == f"error: {tmp_path}/train_lmdb: exists already; remove it or name another\n"


@pytest.mark.skipif(not shutil.which("curl"), reason="fetches file:// addresses with curl")
def test_fetch_takes_the_first_file_with_the_right_sum(tmp_path: Path) -> None:
    (tmp_path / "wrong").write_text("half a fi")
    (tmp_path / "right").write_text("a whole file")
    wanted = hashlib.md5(b"a whole file").hexdigest()

    def fetch(*names: str) -> subprocess.CompletedProcess[str]:
        urls = " ".join(f"file://{tmp_path}/{name}" for name in names)
        script = f"set -euo pipefail; source {ROOT}/scripts/fetch.sh; fetch {tmp_path}/raw/got {wanted} {urls}"
        environment = {"PATH": "/usr/bin:/bin", "PYTHON": sys.executable}
        return subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False, env=environment)

    failed = fetch("missing", "wrong")
    assert failed.returncode == 1
    assert f"error: {tmp_path}/raw/got could not be fetched" in failed.stderr
    assert not list((tmp_path / "raw").iterdir())
    assert fetch("missing", "wrong", "right").returncode == 0
    assert (tmp_path / "raw/got").read_text() == "a whole file"
    assert fetch("missing").returncode == 0  # it is there already
