"""VolumeData: its tops, order, random changes, ranks and resumed runs, and what may be wrong with it."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from bpt.base.errors import DataError, LayerError
from bpt.config.proto import bpt_pb2 as pb
from bpt.data.volume_source import VolumeSource
from bpt.graph.share import Share
from tests.support.data_readers import Make, check_allocated, check_together
from tests.support.golden_cases import graph_of
from tests.support.nifti_files import write

VOLUMES = np.random.default_rng(4).normal(size=(10, 4, 5, 6)).astype(np.float32)
RANDOM = "shuffle: true mirror: true shift: 1"


@pytest.fixture
def volumes(tmp_path: Path) -> Path:
    """A list of 10 volumes, numbered by their labels."""
    for number, volume in enumerate(VOLUMES):
        write(tmp_path / f"volume {number}.nii", volume)
    (tmp_path / "list.txt").write_text("".join(f"volume {number}.nii {number}\n" for number in range(len(VOLUMES))))
    return tmp_path / "list.txt"


def text(
    source: object, more: str = "", shape: tuple[int, ...] = (4, 5, 6), batch_size: int = 4, outer: str = ""
) -> str:
    numbers = " ".join(f"shape: {length}" for length in shape)
    return (
        f'layer {{ name: "v" type: "VolumeData" top: "data" top: "label" {outer} volume_data_param {{'
        f' source: "{source}" batch_size: {batch_size} {numbers} intensity: RAW {more} }} }}'
    )


def test_tops(reader: Make, volumes: Path) -> None:
    one = reader(text(volumes))
    assert [edge.shape for edge in one.net.graph.edges] == [(4, 1, 4, 5, 6), (4,)]
    for rows in ([0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 0, 1]):
        data, label = one.next()
        assert data.dtype == label.dtype == torch.float32
        np.testing.assert_array_equal(data.numpy(), VOLUMES[rows, np.newaxis], strict=True)
        assert label.tolist() == rows
    assert (one.layer.epoch, one.layer.position) == (10, 12)


def test_without_a_label(reader: Make, volumes: Path) -> None:
    one = reader(text(volumes).replace('top: "label"', ""))
    (data,) = one.next()
    np.testing.assert_array_equal(data[:, 0].numpy(), VOLUMES[:4])


def test_shape_and_intensity(reader: Make, volumes: Path) -> None:
    """One number is that of all axes; each volume is normalised by itself, after it has been resampled."""
    one = reader(text(volumes, shape=(3,)).replace("RAW", "MIN_MAX"))
    raw = VolumeSource(str(volumes), "", (3, 3, 3), pb.VolumeDataParameter.RAW)
    data, _ = one.next()
    assert data.shape == one.net.graph.edges[0].shape == (4, 1, 3, 3, 3)
    for index, volume in enumerate(data.numpy()[:, 0]):
        wanted = raw.read(index)
        np.testing.assert_allclose(volume, (wanted - wanted.min()) / np.ptp(wanted), rtol=1e-6, atol=1e-7)


def test_z_score_is_the_default(reader: Make, volumes: Path) -> None:
    data, _ = reader(text(volumes).replace("intensity: RAW", "")).next()
    np.testing.assert_allclose(data.mean(dim=(1, 2, 3, 4)), torch.zeros(4), atol=1e-6)
    np.testing.assert_allclose(data.std(dim=(1, 2, 3, 4), correction=0), torch.ones(4), rtol=1e-6)


def test_root_folder(reader: Make, volumes: Path, tmp_path: Path) -> None:
    (tmp_path / "lists").mkdir()
    moved = volumes.rename(tmp_path / "lists/list.txt")
    data, _ = reader(text(moved, f'root_folder: "{tmp_path}"')).next()
    np.testing.assert_array_equal(data[:, 0].numpy(), VOLUMES[:4])


def test_shuffled_anew_every_epoch(reader: Make, volumes: Path) -> None:
    one = reader(text(volumes, "shuffle: true", batch_size=5))
    epochs = []
    for _ in range(4):
        batches = [one.next() for _ in range(2)]
        labels = torch.cat([label for _, label in batches]).int().tolist()
        np.testing.assert_array_equal(torch.cat([data for data, _ in batches])[:, 0].numpy(), VOLUMES[labels])
        epochs.append(tuple(labels))
    assert {tuple(sorted(epoch)) for epoch in epochs} == {tuple(range(10))}
    assert len({*epochs, tuple(range(10))}) == 5


def test_mirror_and_shift_in_training_only(reader: Make, volumes: Path) -> None:
    """What is in the middle of a volume is in all that it may be changed to."""
    trained = reader(text(volumes, "mirror: true shift: 1", batch_size=10))
    tested = reader(text(volumes, "mirror: true shift: 1", batch_size=10), phase=pb.TEST)
    first, second = trained.next()[0], trained.next()[0]
    assert not torch.equal(first, second)  # another epoch
    for volume, changed in zip(VOLUMES, first[:, 0].numpy(), strict=True):
        middles = [side[1:-1, 1:-1, 1:-1] for side in (volume, volume[::-1])]
        windows = np.lib.stride_tricks.sliding_window_view(changed, (2, 3, 4)).reshape(-1, 2, 3, 4)
        assert any(np.array_equal(window, middle) for window in windows for middle in middles)
    np.testing.assert_array_equal(tested.next()[0][:, 0].numpy(), VOLUMES)


@pytest.mark.parametrize("counts", [(4,), (3, 1), (1, 0, 2, 1)])
@pytest.mark.parametrize("more", ["", RANDOM])
def test_together_the_batch_of_one_process(reader: Make, volumes: Path, counts: tuple[int, ...], more: str) -> None:
    check_together(reader, text(volumes, more), counts, 10)


def test_a_rank_without_samples_reads_nothing(reader: Make, volumes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(VolumeSource, "read", None)
    one = reader(text(volumes, RANDOM), Share(4, 0, 4), 2)
    assert [tuple(top.shape) for top in one.next()] == [(0, 1, 4, 5, 6), (0,)]


def test_setting_the_share_drops_what_was_read_ahead(reader: Make, volumes: Path) -> None:
    one = reader(text(volumes, batch_size=5), Share(0, 4, 5), 2)
    assert one.next()[1].tolist() == [0, 1, 2, 3]
    one.layer.share = Share(0, 2, 5)
    assert one.next()[1].tolist() == [5, 6]
    assert one.layer.position == 10


def test_a_resumed_run_goes_on(reader: Make, volumes: Path) -> None:
    first, resumed = reader(text(volumes, RANDOM)), reader(text(volumes, RANDOM))
    batches = [first.next() for _ in range(8)]
    resumed.layer.position = 20
    for batch in batches[5:]:
        assert all(map(torch.equal, resumed.next(), batch))


def test_reading_ahead_changes_nothing(reader: Make, volumes: Path) -> None:
    one, another = reader(text(volumes, f"{RANDOM} prefetch: 1")), reader(text(volumes, f"{RANDOM} prefetch: 7"))
    for _ in range(6):
        assert all(map(torch.equal, one.next(), another.next()))


def test_allocated_samples(reader: Make, volumes: Path) -> None:
    check_allocated(reader, text(volumes, RANDOM, batch_size=10), text(volumes, RANDOM, batch_size=3))


def test_a_damaged_volume_ends_the_run(reader: Make, volumes: Path, tmp_path: Path) -> None:
    write(tmp_path / "volume 5.nii", np.zeros((4, 5, 6), np.float32))
    one = reader(text(volumes).replace("RAW", "Z_SCORE"))
    one.next()
    with pytest.raises(DataError, match=rf"{volumes}:6: {tmp_path}/volume 5\.nii: all its voxels are 0: Z_SCORE"):
        one.next()


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (text("x", batch_size=0), "volume_data_param needs a batch_size of at least 1"),
        (text(""), "volume_data_param needs a source"),
        (text("x", shape=()), r"needs a shape: 3 numbers of voxels, or one for all axes, .*; not \[\]"),
        (text("x", shape=(4, 4)), r"needs a shape: .* not \[4, 4\]"),
        (text("x", shape=(4, 0, 4)), r"needs a shape: .* each at least 1; not \[4, 0, 4\]"),
        (text("x", "prefetch: 0"), "prefetch must be at least 1"),
        (text("x", "shift: 4"), "shift 4 moves volumes of 4×5×6 out of themselves"),
        (text("x", outer="transform_param { mirror: true }"), "VolumeData has its own transformations"),
        (text("none/x"), 'none/x: no such file: there is no folder "none"'),
    ],
)
def test_wrong_texts(broken: str, message: str) -> None:
    with pytest.raises(LayerError, match=f'layer "v": {message}|layer "v": volume_data_param {message}'):
        graph_of(broken)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("", "list.txt: lists no volumes"),
        ("volume 0.nii 0\nvolume 1.nii one\n", 'list.txt:2: the label of "volume 1.nii" is "one", not an integer'),
        ("volume 0.nii 0\nvolume 11.nii 1\n", 'list.txt:2: lists "volume 11.nii", which does not exist'),
        ("list.txt 0\n", "list.txt:1: .*/list.txt: is not a NIfTI file"),
    ],
)
def test_lists_that_are_wrong(volumes: Path, lines: str, message: str) -> None:
    volumes.write_text(lines)
    with pytest.raises(LayerError, match=f'layer "v": .*{message}'):
        graph_of(text(volumes))


def test_missing_package(volumes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "nibabel", None)
    with pytest.raises(LayerError, match=r"pip install 'bpt\[volume\]'"):
        graph_of(text(volumes))
