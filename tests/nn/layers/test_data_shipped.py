"""Data layers of a node that gets its records from rank 0: their batches are those of a shared path."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from google.protobuf import text_format

from bpt.base.errors import LayerError
from bpt.config.proto import bpt_pb2 as pb
from bpt.data.sample_partition import Run
from bpt.data.shipped import RecordCache
from bpt.data.transform import write_mean
from bpt.nn.layers.data import record_stream_of
from tests.support.data_readers import RANDOM, Make, data
from tests.support.hdf5_files import numbered, text, write
from tests.support.lmdbs import write_images

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
