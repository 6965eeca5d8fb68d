"""Data layers on many ranks: each reads its own samples, and together they have the batch of one process."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from bpt.config.proto import bpt_pb2 as pb
from bpt.data.hdf5_file import Hdf5Source
from bpt.data.lmdb_file import LmdbSource
from bpt.graph.share import Share
from tests.support.data_readers import RANDOM, Make, check_together, data
from tests.support.hdf5_files import numbered, text, write
from tests.support.layer_ranks import shares_of
from tests.support.lmdbs import write_images


@pytest.mark.parametrize("counts", [(4,), (3, 1), (1, 0, 2, 1), (0, 4)])
@pytest.mark.parametrize(("shuffle", "outer"), [("", ""), ("shuffle: true", RANDOM)])
def test_together_the_batch_of_one_process(
    reader: Make, images: str, counts: tuple[int, ...], shuffle: str, outer: str
) -> None:
    check_together(reader, data(images, shuffle, outer=outer), counts, 10, rounds=9)


def test_one_rank_keeps_caffes_order(reader: Make, images: str) -> None:
    alone = reader(data(images))
    labels = [label for _ in range(6) for label in alone.next()[1].tolist()]
    assert labels == [number % 10 for number in range(24)]
    assert alone.rotation == 0


def test_a_test_net_is_never_turned(reader: Make, images: str) -> None:
    ranks = [reader(data(images), share, 2, phase=pb.TEST) for share in shares_of((3, 1))]
    for number in range(6):
        labels = [label for rank in ranks for label in rank.next()[1].tolist()]
        assert labels == [(4 * number + row) % 10 for row in range(4)]
        assert [rank.rotation for rank in ranks] == [0, 0]


def test_over_the_epochs_each_rank_gets_every_sample(reader: Make, images: str) -> None:
    """Also where the batches divide the data set: without turning, a rank would have the same half for ever."""
    ranks = [reader(data(images, batch_size=10), share, 3) for share in shares_of((5, 3, 2))]
    seen: list[set[float]] = [set(), set(), set()]
    for _ in range(12):
        epoch = [rank.next()[1].tolist() for rank in ranks]
        assert sorted(label for labels in epoch for label in labels) == list(range(10))  # none twice, none left out
        for labels, had in zip(epoch, seen, strict=True):
            had.update(labels)
    assert seen == [set(range(10))] * 3


def test_replica_scope(reader: Make, images: str) -> None:
    # Two ranks with the batch of 4 that the text names: together one of 8. The third begins at sample 16, in epoch 1:
    # turned by int(0.618 · 8) = 4 rows.
    ranks = [reader(data(images), Share(4 * rank, 4, 8), 2) for rank in (0, 1)]
    assert [rank.next()[1].tolist() for rank in ranks] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert [rank.next()[1].tolist() for rank in ranks] == [[8, 9, 0, 1], [2, 3, 4, 5]]
    assert [rank.next()[1].tolist() for rank in ranks] == [[0, 1, 2, 3], [6, 7, 8, 9]]
    assert [rank.layer.position for rank in ranks] == [24, 24]


def test_a_rank_reads_its_own_records_only(reader: Make, images: str, monkeypatch: pytest.MonkeyPatch) -> None:
    read: Counter[int] = Counter()
    original = LmdbSource.read

    def counting(source: LmdbSource, index: int) -> object:
        read[index] += 1
        return original(source, index)

    one = reader(data(images, "prefetch: 1", batch_size=10), Share(6, 3, 10), 2)
    monkeypatch.setattr(LmdbSource, "read", counting)
    assert one.next()[1].tolist() == [6, 7, 8]
    one.net.close()
    ahead = dict.fromkeys((2, 3, 4), 1)  # the batch read ahead: int(0.618 · 10) = 6 rows further
    assert read in ({6: 1, 7: 1, 8: 1}, {6: 1, 7: 1, 8: 1, **ahead})


def test_records_are_read_in_their_order(reader: Make, images: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a share goes over the end of the batch, too: an LMDB's cursor goes back by starting at the beginning."""
    one = reader(data(images, batch_size=10), Share(3, 5, 10), 2)
    one.layer.position = 10  # epoch 1: rows 3 + 6 = 9, then 0, 1, 2, 3
    read: list[int] = []
    original = LmdbSource.read
    monkeypatch.setattr(LmdbSource, "read", lambda source, index: read.append(index) or original(source, index))
    assert one.next()[1].tolist() == [9, 0, 1, 2, 3]
    one.net.close()
    assert read[:5] == [0, 1, 2, 3, 9]


def test_without_samples(reader: Make, images: str, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    one = reader(data(images, outer=RANDOM), Share(4, 0, 4), 2)
    original = LmdbSource.read
    monkeypatch.setattr(LmdbSource, "read", lambda source, index: read.append(index) or original(source, index))
    for number in range(1, 4):
        assert [tuple(top.shape) for top in one.next()] == [(0, 2, 4, 4), (0,)]
        assert one.layer.position == 4 * number
    one.net.close()
    assert read == [0]  # for the shape


def test_setting_the_share_drops_what_was_read_ahead(reader: Make, images: str) -> None:
    ranks = [reader(data(images, batch_size=5), share, 2) for share in shares_of((4, 1))]
    assert [rank.next()[1].tolist() for rank in ranks] == [[0, 1, 2, 3], [4]]
    assert [rank.layer.share for rank in ranks] == [Share(0, 4, 5), Share(4, 1, 5)]
    for rank, share in zip(ranks, shares_of((2, 3)), strict=True):
        rank.layer.share = share
        assert rank.layer.share == share
        assert rank.layer.position == 5
    assert [rank.next()[1].tolist() for rank in ranks] == [[5, 6], [7, 8, 9]]
    assert [rank.layer.position for rank in ranks] == [10, 10]


def test_a_resumed_run_goes_on(reader: Make, images: str) -> None:
    shares = shares_of((3, 1))
    first = [reader(data(images), share, 2) for share in shares]
    batches = [[rank.next()[1].tolist() for rank in first] for _ in range(8)]
    resumed = [reader(data(images), share, 2) for share in shares]
    for rank in resumed:
        rank.layer.position = 20
    assert [[rank.next()[1].tolist() for rank in resumed] for _ in range(3)] == batches[5:]


def test_two_data_layers_are_turned_together(reader: Make, images: str, tmp_path: Path) -> None:
    """A data set of another size has other epochs, but its rows belong to the first one's."""
    other = write_images(tmp_path / "other", [np.zeros((1, 1, 1), np.uint8)] * 7)
    both = data(images, name="a") + data(other, name="b")
    ranks = [reader(both, share, 2) for share in shares_of((3, 1))]
    turned = set()
    for number in range(20):
        for rank in ranks:
            _, first, _, second = rank.next()
            pairs = list(zip(first.tolist(), second.tolist(), strict=True))
            assert set(pairs) <= {(row % 10, row % 7) for row in range(4 * number, 4 * number + 4)}
            turned.add(rank.rotation)
    assert len(turned) == 8  # epochs of the first: 80 samples


DUMMY = """layer { name: "noise" type: "DummyData" top: "noise"
                   dummy_data_param { shape { dim: 4 dim: 3 } data_filler { type: "gaussian" } } }"""


@pytest.mark.parametrize("dummy_first", [False, True])
def test_data_and_random_dummy_data(reader: Make, images: str, dummy_first: bool) -> None:
    """In either order a row of noise stands beside the image that it stands beside on one process."""
    source = DUMMY + data(images) if dummy_first else data(images) + DUMMY
    check_together(reader, source, (3, 1), 0 if dummy_first else 10, iterations=True)


@pytest.mark.parametrize("shuffle", ["", "shuffle: true"])
def test_rows_of_hdf5_files(reader: Make, tmp_path: Path, shuffle: str) -> None:
    source = text(write(tmp_path, numbered(0, 5), numbered(5, 6)), f"batch_size: 4 {shuffle}")
    check_together(reader, source, (1, 0, 3), 11, rounds=9)


def test_hdf5_files_are_opened_in_turn(reader: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a share goes over the end of the batch, too: one file at a time is in memory."""
    source = text(write(tmp_path, numbered(0, 5), numbered(5, 5)), "batch_size: 10")
    one = reader(source, Share(3, 5, 10), 2)
    one.layer.position = 10  # epoch 1: rows 9, 0, 1, 2, 3
    loaded: list[int] = []
    original = Hdf5Source._load
    monkeypatch.setattr(Hdf5Source, "_load", lambda source, file: loaded.append(file) or original(source, file))
    assert one.next()[1].tolist() == [9, 0, 1, 2, 3]
    one.net.close()
    assert loaded[:2] == [0, 1]
