"""Data layers of a computing node: samples that it has been allocated, and records that rank 0 sends it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from google.protobuf import text_format
from torch import Tensor

from bpt.base.errors import LayerError
from bpt.config.proto import bpt_pb2 as pb
from bpt.data.hdf5_file import Hdf5Source
from bpt.data.lmdb_file import LmdbSource
from bpt.data.sample_partition import Run
from bpt.data.shipped import RecordCache
from bpt.data.transform import write_mean
from bpt.nn.layers.data import record_stream_of
from tests.support.data_readers import RANDOM, Make, data
from tests.support.hdf5_files import numbered, text, write
from tests.support.layer_ranks import shares_of, whole_of
from tests.support.lmdbs import write_images


def order_of(labels: list[float], positions: list[int]) -> set[float]:
    """The labels at these positions of epoch 0."""
    return {labels[position] for position in positions}


@pytest.mark.parametrize("more", ["", "shuffle: true", "shuffle: true rand_skip: 7"])
def test_an_image_is_what_one_process_makes_of_it(reader: Make, images: str, more: str) -> None:
    """In every pass that of the epoch, crop and mirror included, and in the epoch's order."""
    alone = reader(data(images, more, batch_size=1, outer=RANDOM))
    epochs: list[list[tuple[Tensor, float]]] = []
    stream = [alone.next() for _ in range(60)]
    skip = alone.layer._batches.sampler.skip
    for number, (image, label) in enumerate(stream):
        if number == 0 or (number + skip) % 10 == 0:
            epochs.append([])
        epochs[-1].append((image, label.item()))
    first = reader(data(images, "shuffle: true" if more else "", batch_size=10)).next()[1].tolist()

    node = reader(data(images, more, batch_size=3, outer=RANDOM))
    node.layer.allocate([(8, 10), (1, 4)])
    assert node.layer.epoch == 10
    mine = order_of(first, [8, 9, 1, 2, 3])
    expected = [(image, label) for epoch in epochs for image, label in epoch if label in mine]
    batches = [node.next() for _ in range(8)]
    assert torch.equal(torch.cat([top[0] for top in batches]), torch.cat([image for image, _ in expected[:24]]))
    assert torch.cat([top[1] for top in batches]).tolist() == [label for _, label in expected[:24]]


def test_local_epochs_and_more_samples(reader: Make, images: str) -> None:
    """What was read ahead of the old samples is dropped; a pass that has begun has each sample once."""
    node = reader(data(images, batch_size=3))
    layer = node.layer

    def train(until: Fraction | int) -> list[int]:
        labels: list[int] = []
        while layer.passes < until:
            labels += map(int, node.next()[1].tolist())
        return labels

    layer.allocate([(4, 8)])
    assert (layer.passes, layer.pass_end, layer.position) == (0, 4, 0)
    assert train(1) == [4, 5, 6, 7, 4, 5]
    assert (layer.passes, layer.pass_end, layer.position) == (Fraction(3, 2), 8, 6)
    layer.allocate([(0, 2)])
    assert (layer.passes, layer.pass_end, layer.position) == (Fraction(4, 3), 10, 6)
    assert train(2) == [0, 1, 6, 7, 0, 1]
    layer.allocate([])
    assert train(Fraction(7, 2)) == [4, 5, 6, 7, 0, 1, 4, 5, 6]
    layer.allocate([(8, 9)], gives=[(5, 7)])  # of samples 0, 1, 4, 7 and 8 this pass has had three
    assert (layer.passes, layer.pass_end) == (Fraction(18, 5), 23)
    assert train(4) == [7, 8, 0]


@pytest.mark.parametrize("counts", [(3, 1), (2, 0, 2)])
def test_ranks_share_each_batch_of_the_samples(reader: Make, images: str, counts: tuple[int, ...]) -> None:
    """Together they have the batch of a rank alone, when samples come in between, too; shares are rotated."""
    source = data(images, "shuffle: true", outer=RANDOM)
    alone = reader(source)
    ranks = [reader(source, share, len(counts)) for share in shares_of(counts)]
    turned = set()
    for number in range(9):
        if runs := {0: [(0, 3)], 2: [(5, 9)], 5: [(3, 4)]}.get(number):
            for each in (alone, *ranks):
                each.layer.allocate(runs)
        batch, shares = alone.next(), [rank.next() for rank in ranks]
        (rotation,) = {rank.rotation for rank in ranks}
        turned.add(rotation)
        for top, parts in zip(batch, zip(*shares, strict=True), strict=True):
            assert torch.equal(whole_of(parts, counts, rotation), top)
        facts = {(each.layer.passes, each.layer.pass_end, each.layer.position) for each in (alone, *ranks)}
        assert len(facts) == 1
    assert len(turned) > 1


def test_two_data_layers_keep_together(reader: Make, images: str) -> None:
    node = reader(data(images, name="a") + data(images, name="b"))
    layers: dict[str, Any] = node.net.data_layers()
    for layer in layers.values():
        layer.allocate([(3, 9)])
    for _ in range(5):
        first, label, second, other = node.next()
        assert torch.equal(first, second) and torch.equal(label, other)


def test_without_samples(reader: Make, images: str) -> None:
    layer = reader(data(images)).layer
    layer.allocate([])
    assert (layer.passes, layer.pass_end, layer.position) == (0, 0, 0)
    layer.allocate([(0, 10)], begun=2)
    assert (layer.passes, layer.pass_end) == (2, 10)


def test_records_of_others_are_not_read(reader: Make, images: str, monkeypatch: pytest.MonkeyPatch) -> None:
    node = reader(data(images, "shuffle: true"))
    node.layer.allocate([(0, 3), (5, 6)])
    read: list[int] = []
    original = LmdbSource.read
    monkeypatch.setattr(LmdbSource, "read", lambda source, index: read.append(index) or original(source, index))
    labels = [label for _ in range(4) for label in node.next()[1].tolist()]
    node.net.close()
    assert set(read) == set(labels) and len(set(labels)) == 4


def test_a_resumed_run_goes_on(reader: Make, images: str) -> None:
    history: list[tuple[int, list[Run]]] = [(0, [(0, 3)]), (4, [(5, 7)]), (12, [(7, 10)])]
    node = reader(data(images, "shuffle: true", outer=RANDOM))
    for position, runs in history:
        while node.layer.position < position:
            node.next()
        node.layer.allocate(runs)
    node.next()
    resumed = reader(data(images, "shuffle: true", outer=RANDOM))
    for position, runs in history:
        resumed.layer.position = position
        resumed.layer.allocate(runs)
    resumed.layer.position = node.layer.position
    for _ in range(6):
        assert all(map(torch.equal, node.next(), resumed.next()))


def test_too_few_samples(reader: Make, images: str, tmp_path: Path) -> None:
    other = write_images(tmp_path / "other", [np.zeros((1, 1, 1), np.uint8)] * 7)
    node = reader(data(images, name="a") + data(other, name="b"))
    first: Any
    second: Any
    first, second = node.net.data_layers().values()
    first.allocate([(0, 8)])
    with pytest.raises(LayerError) as caught:
        second.allocate([(0, 8)])
    assert str(caught.value) == (
        'layer "b": its data set has 7 samples, but others of this net have 8 or more; '
        "with SGWU, AGWU or ASGD all need as many"
    )


@pytest.mark.parametrize("more", ["", "shuffle: true"])
def test_rows_of_hdf5_files(reader: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: str) -> None:
    """A file without samples of this node is never loaded."""
    source = write(tmp_path, numbered(0, 4), numbered(4, 4), numbered(8, 4))
    alone = reader(text(source, f"batch_size: 12 {more}"))
    epochs = [[int(label) for label in alone.next()[1].tolist()] for _ in range(4)]
    alone.net.close()
    node = reader(text(source, f"batch_size: 5 {more}"))
    loaded: list[int] = []
    original = Hdf5Source._load
    monkeypatch.setattr(Hdf5Source, "_load", lambda source, file: loaded.append(file) or original(source, file))
    node.layer.allocate([(5, 7), (0, 3)])
    mine = {epochs[0][position] for position in (5, 6, 0, 1, 2)}
    for epoch in epochs:
        rows, labels = node.next()
        assert labels.tolist() == [label for label in epoch if label in mine]
        assert torch.equal(rows, torch.stack([labels, -labels], dim=1))
    node.net.close()
    assert set(loaded) == {label // 4 for label in mine} and len(set(loaded)) == 2


Spooled = Callable[[RecordCache], RecordCache]


@pytest.fixture
def kept() -> Iterator[Spooled]:
    """Closes caches, after the nets that read them."""
    caches: list[RecordCache] = []
    yield lambda cache: caches.append(cache) or cache
    for cache in caches:
        cache.close()


def redirected(source: str, cache: RecordCache) -> str:
    net = text_format.Parse(source, pb.NetParameter())
    cache.redirect(net.layer[0])
    return text_format.MessageToString(net)


HISTORY: list[list[Run]] = [[(8, 10), (1, 4)], [], [(4, 7)]]


@pytest.mark.parametrize("more", ["", "shuffle: true", "shuffle: true rand_skip: 7"])
@pytest.mark.parametrize("mean", [False, True])
def test_the_same_batches(kept: Spooled, reader: Make, images: str, more: str, mean: bool, tmp_path: Path) -> None:
    outer = RANDOM
    if mean:
        write_mean(tmp_path / "mean", np.random.default_rng(2).normal(100, 50, (2, 6, 5)).astype(np.float32))
        outer = RANDOM.replace("{", f'{{ mean_file: "{tmp_path / "mean"}"')
    source = data(images, more, batch_size=3, outer=outer)
    server = reader(source)
    stream = server.layer.record_stream()
    shared = reader(source)
    cache = kept(RecordCache(stream.header))
    Path(images).rename(tmp_path / "unreachable")
    (tmp_path / "mean").unlink(missing_ok=True)
    node = reader(redirected(source, cache))
    assert [edge.shape for edge in node.net.graph.edges] == [(3, 2, 4, 4), (3,)]
    assert node.layer.epoch == 10
    for runs in HISTORY:
        for piece in stream.pieces(runs, size=100):
            cache.append(piece)
        for one in (shared, node):
            one.layer.allocate(runs)
        for _ in range(4):
            expected, batch = shared.next(), node.next()
            assert all(map(torch.equal, expected, batch))
        assert node.layer.passes == shared.layer.passes
    stream.close()


def test_records_may_arrive_while_others_are_read(kept: Spooled, reader: Make, images: str) -> None:
    source = data(images, batch_size=2)
    shared = reader(source)
    stream = shared.layer.record_stream()
    cache = kept(RecordCache(stream.header))
    node = reader(redirected(source, cache))
    for position in range(0, 10, 2):
        runs = [(position, position + 2)]
        for piece in stream.pieces(runs):
            cache.append(piece)
        for one in (shared, node):
            one.layer.allocate(runs)
        assert all(map(torch.equal, shared.next(), node.next()))  # leaves the thread reading ahead
    stream.close()


def test_an_error_of_the_first_record_names_the_layer(reader: Make, kept: Spooled, tmp_path: Path) -> None:
    images = write_images(tmp_path / "db", [np.zeros((1, 6, 6), np.uint8)] * 2)
    stream = reader(data(images)).layer.record_stream()
    source = redirected(data(images, outer="transform_param { crop_size: 9 }"), kept(RecordCache(stream.header)))
    stream.close()
    with pytest.raises(LayerError, match='layer "d": crop_size 9 is larger than the image 1×6×6'):
        reader(source)


def test_hdf5_files_are_not_shipped(reader: Make, tmp_path: Path) -> None:
    layer = reader(text(write(tmp_path, numbered(0, 5)))).layer
    with pytest.raises(LayerError) as caught:
        record_stream_of(layer)
    assert str(caught.value) == (
        'layer "d": ship_data sends the records of Data layers, not what HDF5Data reads; write the data as an LMDB for '
        "a Data layer, or let all nodes reach them and set ship_data: false"
    )
