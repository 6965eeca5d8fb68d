"""Made-up brains: the same every time, told apart by the planted place and not by their mean."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import nibabel
import numpy as np
import pytest

from bpt.data.volume_source import list_volumes
from scripts import make_brains
from tests.scripts.written_files import files

SIZE = 16
COUNT = 200
LABELS = np.arange(COUNT) % 2


Run = Callable[..., int]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs the script, for volumes of 8×8×8 voxels."""

    def run(folder: Path, *more: str, place: Callable[[Path], list[str]] = lambda folder: [str(folder)]) -> int:
        monkeypatch.setattr(sys, "argv", ["make_brains.py", "--size=8", *more, *place(folder)])
        return make_brains.main()

    return run


@pytest.fixture(scope="module")
def brains() -> np.ndarray:
    """200 volumes as they are written by default, but small; every second one of class 1."""
    made = [
        make_brains.brain(SIZE, index % 2, 0.6, 0.1, np.random.default_rng((1, 0, index))) for index in range(COUNT)
    ]
    return np.stack(made)


def right(values: np.ndarray) -> float:
    """The largest part of the volumes that a threshold of ``values`` tells right, whichever side is class 1."""
    ones = LABELS[np.argsort(values)]
    below = np.concatenate(([0], np.cumsum(2 * ones - 1)))  # the ones less the zeros that lie below each threshold
    return 0.5 + float(np.abs(below).max()) / COUNT


def test_files_lists_and_region(run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path, "--train=3", "--test=2") == 0
    assert capsys.readouterr().out == f"{tmp_path}/train.txt: 3 volumes\n{tmp_path}/test.txt: 2 volumes\n"
    volumes = [f"train/000{index}.nii.gz" for index in range(3)] + [f"test/000{index}.nii.gz" for index in range(2)]
    assert sorted(files(tmp_path)) == sorted([*volumes, "train.txt", "test.txt", "region.nii.gz"])
    assert (tmp_path / "train.txt").read_text() == "".join(f"{volumes[index]} {index % 2}\n" for index in range(3))
    assert [(entry.path, entry.label) for entry in list_volumes(str(tmp_path / "test.txt"))] == [
        (tmp_path / "test/0000.nii.gz", 0),
        (tmp_path / "test/0001.nii.gz", 1),
    ]
    for name in (*volumes, "region.nii.gz"):
        image = nibabel.Nifti1Image.from_filename(tmp_path / name)
        assert image.shape == (8, 8, 8)
        assert nibabel.aff2axcodes(image.affine) == ("R", "A", "S")
        np.testing.assert_allclose(image.affine @ [3.5, 3.5, 3.5, 1], [0, 0, 0, 1], atol=1e-4)
        np.testing.assert_allclose(image.header.get_zooms(), (25, 25, 25))
    np.testing.assert_array_equal(
        nibabel.Nifti1Image.from_filename(tmp_path / "region.nii.gz").get_fdata(), make_brains.region(8)
    )
    assert len({nibabel.Nifti1Image.from_filename(tmp_path / name).get_fdata().tobytes() for name in volumes}) == 5


def test_the_same_every_time(run: Run, tmp_path: Path) -> None:
    run(tmp_path / "a", "--train=3", "--test=2")
    run(tmp_path / "b", "--train=3", "--test=2", place=lambda folder: ["--out", str(folder)])
    run(tmp_path / "c", "--train=4", "--test=1")  # how many are made does not change those that are
    run(tmp_path / "d", "--train=3", "--test=2", "--seed=1")
    first, again, longer, other = (files(tmp_path / name) for name in "abcd")
    assert first == again
    assert {name for name in longer if longer[name] == first.get(name)} == {
        *(f"train/000{index}.nii.gz" for index in range(3)),
        "test/0000.nii.gz",
        "region.nii.gz",
    }
    assert {name for name in other if other[name] == first[name]} == {"train.txt", "test.txt", "region.nii.gz"}


def test_the_mean_intensity_does_not_tell_the_class(brains: np.ndarray) -> None:
    """By the best threshold, chosen afterwards: 63 %. For labels at random it would be about 56 %."""
    means = brains.mean(axis=(1, 2, 3))
    assert right(means) < 0.65
    assert right(brains.max(axis=(1, 2, 3))) < 0.65
    inside = brains[:, make_brains.region(SIZE) > 0].mean(axis=1)
    assert right(inside / means) > 0.95


def test_the_classes_differ_in_the_region(brains: np.ndarray) -> None:
    """The voxels whose means differ most for their scatter are those of the region, and there the tissue is darker."""
    region = make_brains.region(SIZE) > 0
    healthy, ill = brains[LABELS == 0], brains[LABELS == 1]
    error = np.sqrt((healthy.var(axis=0) + ill.var(axis=0)) / (COUNT / 2))
    score = (ill.mean(axis=0) - healthy.mean(axis=0)) / error
    most = np.argsort(-np.abs(score), axis=None)[: region.sum()]
    assert region.ravel()[most].mean() > 0.85
    assert score[region].max() < -3
    assert abs(score[~region].mean()) < 0.5
    left, right_side = region[: SIZE // 2], region[SIZE // 2 :]
    np.testing.assert_array_equal(left, right_side[::-1])
    assert left.any()


def test_without_atrophy_the_classes_are_alike() -> None:
    """The same chances, apart from those of the atrophy."""
    region = make_brains.region(SIZE) > 0
    made = [make_brains.brain(SIZE, index % 2, 0, 0.1, np.random.default_rng((2, index))) for index in range(COUNT)]
    inside = np.array([volume[region].mean() / volume.mean() for volume in made])
    assert right(inside) < 0.65


@pytest.mark.parametrize("wrong", ["--size=7", "--train=-1", "--noise=nan", "--noise=inf", "--shrink=1", "--seed=x"])
def test_wrong_arguments(run: Run, tmp_path: Path, wrong: str) -> None:
    with pytest.raises(SystemExit) as left:
        run(tmp_path, wrong)
    assert left.value.code == 2
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("name", "count"), [("train", 1), ("train.txt", 1), ("region.nii.gz", 0)])
def test_what_cannot_be_written(
    run: Run, tmp_path: Path, name: str, count: int, capsys: pytest.CaptureFixture[str]
) -> None:
    if name == "train":
        (tmp_path / name).write_text("a file where the folder should be")
    else:
        (tmp_path / name).mkdir()
    assert run(tmp_path, f"--train={count}", "--test=0") == 1
    error = capsys.readouterr().err
    assert error.startswith(f"error: {tmp_path}/{name}") and "could not be written" in error
    assert error.count("\n") == 1
