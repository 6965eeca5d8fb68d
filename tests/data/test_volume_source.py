"""Volumes in a list, and what is done to them."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from bpt.base.errors import BptError, DataError, FileError, UserError
from bpt.config.proto import bpt_pb2 as pb
from bpt.data import volume_source
from bpt.data.nifti import read_nifti
from bpt.data.sampler import SampleDraw
from bpt.data.volume_source import VolumeEntry, VolumeSource, VolumeTransform, list_volumes, normalise, resample
from tests.support.nifti_files import VOXELS, write

Kinds = pb.VolumeDataParameter
NOISE = np.random.default_rng(3).normal(2, 5, (5, 6, 7)).astype(np.float32)


def centres(old: int, new: int) -> np.ndarray:
    """Where the new voxels lie among the old ones."""
    return np.linspace(0, old - 1, new) if new > 1 else np.array([(old - 1) / 2])


@pytest.mark.parametrize("shape", [(5, 6, 7), (9, 11, 13), (3, 4, 2), (12, 3, 7), (1, 1, 1), (10, 1, 40)])
def test_resampling_is_trilinear_interpolation(shape: tuple[int, ...]) -> None:
    """Computed in another way: each new voxel from the eight old ones around it, by their weights."""
    expected = np.zeros(shape)
    axes = [centres(old, new) for old, new in zip(NOISE.shape, shape, strict=True)]
    for place in np.ndindex(*shape):
        at = np.array([axis[index] for axis, index in zip(axes, place, strict=True)])
        base = np.floor(at).astype(int)
        for corner in np.ndindex(2, 2, 2):
            weight = np.prod(np.where(corner, at - base, 1 - (at - base)))
            expected[place] += weight * NOISE[tuple(np.minimum(base + corner, np.array(NOISE.shape) - 1))]
    result = resample(NOISE, shape)
    assert (result.dtype, result.shape) == (np.float32, shape)
    np.testing.assert_allclose(result, expected, atol=2e-5)


@pytest.mark.parametrize("shape", [(4, 4, 4), (9, 17, 33), (30, 7, 2)])
def test_a_linear_ramp_stays_one(shape: tuple[int, ...]) -> None:
    """Up to the rounding of float32, also at the borders."""

    def ramp(*axes: np.ndarray) -> np.ndarray:
        x, y, z = np.meshgrid(*axes, indexing="ij")
        values: np.ndarray = 3 + 2 * x - 5 * y + 0.25 * z
        return values

    old = (9, 8, 10)
    result = resample(ramp(*map(np.arange, old)).astype(np.float32), shape)
    np.testing.assert_allclose(result, ramp(*map(centres, old, shape)), rtol=0, atol=1e-5)


def test_a_ramp_of_whole_steps_is_exact() -> None:
    ramp = np.broadcast_to(np.arange(5, dtype=np.float32)[:, np.newaxis, np.newaxis], (5, 2, 2))
    for new, step in ((9, 0.5), (17, 0.25), (3, 2), (2, 4)):
        np.testing.assert_array_equal(resample(ramp, (new, 2, 2))[:, 1, 1], np.arange(new) * step)


def test_what_resampling_leaves_as_it_is() -> None:
    np.testing.assert_array_equal(resample(NOISE, NOISE.shape), NOISE, strict=True)
    larger = resample(NOISE, (9, 11, 13))  # every old voxel is among the new ones
    np.testing.assert_array_equal(larger[::2, ::2, ::2], NOISE)
    for shape in ((3, 11, 9), (23, 2, 8)):
        result = resample(NOISE, shape)
        np.testing.assert_array_equal(result[:: shape[0] - 1, :: shape[1] - 1, :: shape[2] - 1], NOISE[::4, ::5, ::6])
        equal = resample(np.full_like(NOISE, 0.1), shape)
        np.testing.assert_array_equal(equal, np.full(shape, 0.1, np.float32), strict=True)
    one = np.float32(7).reshape(1, 1, 1)
    np.testing.assert_array_equal(resample(one, (2, 3, 1)), np.full((2, 3, 1), 7, np.float32), strict=True)


def test_intensities() -> None:
    volume = np.array([1, 2, 3, 6], np.float32).reshape(1, 2, 2)
    # Mean 3, variance (4 + 1 + 0 + 9) / 4.
    expected = np.array([-2, -1, 0, 3]) / np.sqrt(3.5)
    np.testing.assert_allclose(normalise(volume, Kinds.Z_SCORE).ravel(), expected, rtol=1e-6)
    np.testing.assert_allclose(normalise(volume, Kinds.MIN_MAX).ravel(), [0, 0.2, 0.4, 1], rtol=1e-6)
    np.testing.assert_array_equal(normalise(volume, Kinds.RAW), volume, strict=True)
    for kind in Kinds.Intensity.values():
        assert normalise(volume, kind).dtype == np.float32


def test_intensities_far_from_zero() -> None:
    """Sums of many large voxels: float32 would not do."""
    volume = (10_000 + np.arange(64**3, dtype=np.float32) % 2).reshape(64, 64, 64)
    np.testing.assert_array_equal(normalise(volume, Kinds.Z_SCORE), np.where(volume == 10_000, -1, 1))


@pytest.mark.parametrize("kind", ["Z_SCORE", "MIN_MAX"])
def test_intensities_of_equal_voxels(kind: str) -> None:
    volume = np.full((2, 3, 4), 0.1, np.float32)
    with pytest.raises(DataError, match=f"all its voxels are 0.1: {kind} has nothing to divide by"):
        normalise(volume, Kinds.Intensity.Value(kind))
    np.testing.assert_array_equal(normalise(volume, Kinds.RAW), volume)


def draw_of(epochs: int, samples: int) -> SampleDraw:
    """Every sample in every epoch."""
    epoch, sample = np.divmod(np.arange(epochs * samples), samples)
    return SampleDraw(epoch, sample)


def transformed(transform: VolumeTransform, volume: np.ndarray, draw: SampleDraw) -> np.ndarray:
    out = np.full((len(draw.samples), 1, *volume.shape), np.nan, np.float32)
    transform([volume] * len(draw.samples), draw, out)
    return out[:, 0]


def moved(volume: np.ndarray, by: tuple[int, ...], shift: int) -> np.ndarray:
    """The volume moved: a window of it, with its borders repeated."""
    wide = np.pad(volume, shift, mode="edge")
    window = tuple(slice(shift - b, shift - b + length) for b, length in zip(by, volume.shape, strict=True))
    return wide[window]


def test_mirroring_is_left_to_right_for_about_half() -> None:
    result = transformed(VolumeTransform(mirror=True, shift=0, phase=pb.TRAIN, seed=1), NOISE, draw_of(10, 40))
    flipped = [np.array_equal(volume, NOISE[::-1]) for volume in result]
    assert flipped == [not np.array_equal(volume, NOISE) for volume in result]
    assert 160 < sum(flipped) < 240  # 200 on average, with a standard deviation of 10


def test_moving_goes_every_way() -> None:
    """Each of the 3³ moves comes, about as often as the others, and the border is repeated."""
    moves = {moved(NOISE, by, 1).tobytes(): by for by in itertools.product((-1, 0, 1), repeat=3)}
    assert len(moves) == 27
    result = transformed(VolumeTransform(mirror=False, shift=1, phase=pb.TRAIN, seed=1), NOISE, draw_of(27, 40))
    found = [moves[volume.tobytes()] for volume in result]
    counts = np.array([found.count(by) for by in moves.values()])  # 40 on average, with a standard deviation of 6
    assert counts.min() > 15 and counts.max() < 65


def test_moving_far_and_mirroring() -> None:
    result = transformed(VolumeTransform(mirror=True, shift=4, phase=pb.TRAIN, seed=2), NOISE, draw_of(2, 20))
    steps = list(itertools.product(range(-4, 5), repeat=3))
    ways = {moved(side, by, 4).tobytes() for side in (NOISE, NOISE[::-1]) for by in steps}
    assert {volume.tobytes() for volume in result} <= ways


def test_chances_depend_on_seed_epoch_and_sample_only() -> None:
    def transform(seed: int = 5) -> VolumeTransform:
        return VolumeTransform(mirror=True, shift=2, phase=pb.TRAIN, seed=seed)

    draw = draw_of(3, 8)
    whole = transformed(transform(), NOISE, draw)
    order = np.random.default_rng(1).permutation(24)
    mixed = transformed(transform(), NOISE, SampleDraw(draw.epochs[order], draw.samples[order]))
    np.testing.assert_array_equal(mixed, whole[order])
    again = transform()
    parts = [transformed(again, NOISE, SampleDraw(draw.epochs[i : i + 1], draw.samples[i : i + 1])) for i in range(24)]
    np.testing.assert_array_equal(np.concatenate(parts), whole)
    assert not np.array_equal(whole[:8], whole[8:16])
    assert not np.array_equal(transformed(transform(6), NOISE, draw), whole)


def test_nothing_is_done_in_test() -> None:
    transform = VolumeTransform(mirror=True, shift=9, phase=pb.TEST, seed=1)
    transform.check(NOISE.shape)
    np.testing.assert_array_equal(transformed(transform, NOISE, draw_of(1, 9)), np.stack([NOISE] * 9))


def test_no_samples() -> None:
    transform = VolumeTransform(mirror=True, shift=1, phase=pb.TRAIN)
    assert transformed(transform, NOISE, draw_of(0, 1)).shape == (0, 5, 6, 7)


def test_moving_further_than_the_volume_is_long() -> None:
    VolumeTransform(mirror=False, shift=4, phase=pb.TRAIN).check((5, 6, 7))
    with pytest.raises(UserError, match="shift 5 moves volumes of 5×6×7 out of themselves"):
        VolumeTransform(mirror=False, shift=5, phase=pb.TRAIN).check((5, 6, 7))


RAW, Z_SCORE = pb.VolumeDataParameter.RAW, pb.VolumeDataParameter.Z_SCORE
SHAPE = (2, 3, 4)  # of VOXELS


def listed(folder: Path, text: str | bytes) -> str:
    """A list of this text in ``folder``, which has the volumes a.nii and "my scan.nii.gz"."""
    folder.mkdir(parents=True, exist_ok=True)
    write(folder / "a.nii")
    write(folder / "my scan.nii.gz", VOXELS + 1)
    (folder / "list.txt").write_bytes(text if isinstance(text, bytes) else text.encode())
    return str(folder / "list.txt")


def test_lines(tmp_path: Path) -> None:
    """Empty ones do not count, but are counted; the label is the last word; a path may be absolute."""
    path = listed(tmp_path, f"a.nii 0\n\n   \n  my scan.nii.gz \t -7  \r\n{tmp_path}/a.nii +12\na.nii 3")
    assert list_volumes(path) == [
        VolumeEntry(tmp_path / "a.nii", 0, f"{path}:1"),
        VolumeEntry(tmp_path / "my scan.nii.gz", -7, f"{path}:4"),
        VolumeEntry(tmp_path / "a.nii", 12, f"{path}:5"),
        VolumeEntry(tmp_path / "a.nii", 3, f"{path}:6"),
    ]


def test_a_list_as_windows_writes_it(tmp_path: Path) -> None:
    path = listed(tmp_path, b"\xef\xbb\xbfa.nii 0\r\nmy scan.nii.gz 1\r\n")
    assert [(entry.path.name, entry.label) for entry in list_volumes(path)] == [("a.nii", 0), ("my scan.nii.gz", 1)]


def test_where_the_volumes_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the list's folder, wherever the command runs, or under the root folder."""
    listed(tmp_path / "scans", "a.nii 5\n")
    (tmp_path / "other").mkdir()
    (tmp_path / "other/list.txt").write_text("a.nii 6\n")
    monkeypatch.chdir(tmp_path)
    assert list_volumes("scans/list.txt") == [VolumeEntry(Path("scans/a.nii"), 5, "scans/list.txt:1")]
    assert list_volumes("other/list.txt", "scans") == [VolumeEntry(Path("scans/a.nii"), 6, "other/list.txt:1")]
    looked = rf'lists "a\.nii", which does not exist \(looked for {tmp_path}/other/a\.nii\)'
    with pytest.raises(FileError, match=rf"^other/list\.txt:1: {looked}$"):
        list_volumes("other/list.txt")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "list.txt: lists no volumes; write a line for each: its path, then its label"),
        (" \n\n", "list.txt: lists no volumes"),
        ("a.nii 0\n\nmy scan.nii.gz\n", 'list.txt:3: the label of "my" is "scan.nii.gz", not an integer'),
        ("a.nii\n", 'list.txt:1: "a.nii" is a path or a label, not both'),
        ("1\n", 'list.txt:1: "1" is a path or a label, not both'),
        ("a.nii 0\na.nii 1.0\n", 'list.txt:2: the label of "a.nii" is "1.0", not an integer'),
        ("a.nii AD\n", 'list.txt:1: the label of "a.nii" is "AD", not an integer; the label is the last word'),
        ("a.nii 1_0\n", 'list.txt:1: the label of "a.nii" is "1_0", not an integer'),
        ("a.nii ²\n", 'list.txt:1: the label of "a.nii" is "²", not an integer'),
        ("a.nii 16777217\n", 'list.txt:1: the label of "a.nii" is 16777217; float32 has no such integer'),
        ("a.nii -" + "9" * 5000, "float32 has no such integer"),
        ("a.nii 0\nb.nii 1\n", 'list.txt:2: lists "b.nii", which does not exist'),
        (". 0\n", 'list.txt:1: lists ".", which does not exist'),
        ("a\0.nii 0\n", "which does not exist"),
        (b"\xff\xfe\x00", "list.txt: is not a text file that lists volumes"),
    ],
)
def test_lists_that_are_wrong(tmp_path: Path, text: str | bytes, message: str) -> None:
    with pytest.raises(FileError) as raised:
        list_volumes(listed(tmp_path, text))
    assert message in str(raised.value)


def test_the_largest_label(tmp_path: Path) -> None:
    (entry,) = list_volumes(listed(tmp_path, "a.nii 16777216"))
    assert np.float32(entry.label) == entry.label == 2**24


def test_a_missing_list(tmp_path: Path) -> None:
    listed(tmp_path, "")
    with pytest.raises(FileError, match=rf"lists.txt: no such file; did you mean .* \(looked for {tmp_path}/lists.txt"):
        list_volumes(str(tmp_path / "lists.txt"))
    with pytest.raises(FileError, match="is a folder, not a file"):
        list_volumes(str(tmp_path))


def test_volumes_as_wanted(tmp_path: Path) -> None:
    path = listed(tmp_path, "a.nii 0\nmy scan.nii.gz 1\n")
    source = VolumeSource(path, "", (3, 3, 4), RAW)
    assert (len(source), source.path) == (2, path)
    middle = (VOXELS[0] + VOXELS[1]) / 2
    np.testing.assert_array_equal(source.read(1), np.stack([VOXELS[0], middle, VOXELS[1]]) + 1, strict=True)
    expected = (VOXELS - VOXELS.mean()) / VOXELS.std()
    np.testing.assert_allclose(VolumeSource(path, "", SHAPE, Z_SCORE).read(0), expected, rtol=1e-5)


def test_what_stays_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first volumes that are read, as long as there is room."""
    read: list[str] = []
    original = read_nifti
    monkeypatch.setattr(volume_source, "read_nifti", lambda path: read.append(path.name) or original(path))
    path = listed(tmp_path, "a.nii 0\nmy scan.nii.gz 1\na.nii 0\n")
    source = VolumeSource(path, "", SHAPE, RAW, cache_bytes=2 * VOXELS.nbytes + 1)
    for _ in range(2):
        volumes = [source.read(index) for index in (1, 0, 2)]
        np.testing.assert_array_equal(volumes, [VOXELS + 1, VOXELS, VOXELS])
    assert read == ["my scan.nii.gz", "a.nii", "a.nii", "a.nii"]
    source.close()


def damaged(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-9])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (Path.unlink, "no such file"),
        (damaged, "is not a NIfTI file, or a damaged one"),
        (lambda path: path.write_bytes(b"no volume"), "is not a NIfTI file"),
        (lambda path: write(path, np.full(SHAPE, np.nan, np.float32)), "has 24 of 24 voxels that are no finite"),
        (lambda path: write(path, np.full(SHAPE, 2.5, np.float32)), "all its voxels are 2.5: Z_SCORE has nothing"),
        (lambda path: write(path, np.zeros((*SHAPE, 2), np.float32)), "holds several volumes"),
    ],
)
def test_a_volume_that_cannot_be_used(tmp_path: Path, change: Callable[[Path], object], message: str) -> None:
    """It is found when it is read; the list's line and the file are named."""
    path = listed(tmp_path, "a.nii 0\n\nmy scan.nii.gz 1\n")
    source = VolumeSource(path, "", SHAPE, Z_SCORE)
    change(tmp_path / "my scan.nii.gz")
    source.read(0)
    with pytest.raises(DataError, match=rf"^{path}:3: {tmp_path}/my scan\.nii\.gz: .*{message}") as raised:
        source.read(1)
    assert "\n" not in str(raised.value)


def test_the_first_file_is_looked_at_before_the_run(tmp_path: Path) -> None:
    path = listed(tmp_path, "list.txt 0\na.nii 1\n")
    with pytest.raises(FileError, match=rf"^{path}:1: {path}: is not a NIfTI file"):
        VolumeSource(path, "", SHAPE, RAW)


def test_equal_voxels_are_found_after_resampling_too(tmp_path: Path) -> None:
    """0.1 is no number of float32: a careless interpolation would make noise of it."""
    path = listed(tmp_path, "a.nii 0\n")
    write(tmp_path / "a.nii", np.full(SHAPE, 0.1, np.float32))
    with pytest.raises(DataError, match=r"all its voxels are 0\.1"):
        VolumeSource(path, "", (7, 5, 6), Z_SCORE).read(0)


def test_missing_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = listed(tmp_path, "a.nii 0\n")
    monkeypatch.setitem(sys.modules, "nibabel", None)
    with pytest.raises(UserError, match=r"pip install 'bpt\[volume\]'") as raised:
        VolumeSource(path, "", SHAPE, RAW)
    assert isinstance(raised.value, BptError) and raised.value.exit_status == 2
