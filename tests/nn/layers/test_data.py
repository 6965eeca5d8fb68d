"""Data: against a real Caffe's batches, and what a net's text can get wrong."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from google.protobuf import text_format

from bpt.base.errors import DataError, LayerError
from bpt.config.proto import bpt_pb2 as pb
from bpt.config.proto.upgrade import upgrade_net
from bpt.data.lmdb_file import LmdbWriter
from tests.support.data_readers import Make
from tests.support.lmdbs import write_images
from tests.support.paths import GOLDEN

FOLDER = GOLDEN / "data"
TYPES = ("Data", "HDF5Data", "ImageData")
CASES = [case for case in json.loads((FOLDER / "data.json").read_text()) if case["type"] in TYPES]
RECORDED = dict(np.load(FOLDER / "data.npz"))
RANDOM = "data_train_mirror_crop_random"


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(FOLDER)


Started = Callable[[], list[str]]


@pytest.fixture
def started() -> Started:
    """The names of the threads that run and did not when the test began."""
    before = set(threading.enumerate())
    return lambda: [thread.name for thread in threading.enumerate() if thread not in before]


def data(source: object, more: str = "batch_size: 4", outer: str = "") -> str:
    return (
        f'layer {{ name: "d" type: "Data" top: "data" top: "label" {outer}'
        f' data_param {{ source: "{source}" backend: LMDB {more} }} }}'
    )


@pytest.mark.parametrize("case", [case for case in CASES if not case["random"]], ids=lambda case: case["name"])
def test_batches_are_caffes(case: dict[str, Any], reader: Make) -> None:
    net = reader(case["prototxt"], phase=pb.Phase.Value(case["phase"]))
    assert {edge.blob: list(edge.shape) for edge in net.net.graph.edges} == case["shapes"]
    for step in range(case["steps"]):
        for name, blob in zip(case["tops"], net.next(), strict=True):
            np.testing.assert_array_equal(blob.numpy(), RECORDED[f"{case['name']}/s{step}/{name}"])


def test_random_crops_are_windows_of_the_records(reader: Make) -> None:
    case = next(case for case in CASES if case["name"] == RANDOM)
    images, labels = reader(case["prototxt"]).next()
    np.testing.assert_array_equal(labels.numpy(), RECORDED[f"{RANDOM}/s0/label"])
    records = np.load(GOLDEN / "lmdb" / "lmdb_contents.npz")["digits_test_lmdb/data"].astype(np.float32)
    for image, record in zip(images.numpy(), records[:20], strict=True):
        windows = [record[:, top : top + 24, left : left + 24] for top in range(5) for left in range(5)]
        assert any((image == w).all() or (image == w[:, :, ::-1]).all() for w in windows)
    unmoved = np.stack([record[:, 2:26, 2:26] for record in records[:20]])
    assert not np.array_equal(images.numpy(), unmoved)


def test_order_and_augmentation_do_not_depend_on_the_batches(reader: Make) -> None:
    """Position p of the stream is the same sample in the same crop, however it is reached."""
    outer = "transform_param { crop_size: 20 mirror: true }"

    def read(batch_size: int, positions: list[int]) -> torch.Tensor:
        net = reader(data("digits_test_lmdb", f"batch_size: {batch_size} shuffle: true", outer), seed=3)
        batches = []
        for position in positions:
            if net.layer.position != position:
                net.layer.position = position
            batches.append(net.next()[0])
            assert net.layer.position == position + batch_size
        return torch.cat(batches)

    whole = read(60, [0, 60])  # into the second epoch: there are 100 records
    assert torch.equal(read(12, list(range(0, 120, 12))), whole)
    assert torch.equal(read(10, [90, 100, 20]), torch.cat([whole[90:110], whole[20:30]]))


def test_seed_decides_the_order(reader: Make) -> None:
    text = data("digits_test_lmdb", "batch_size: 100 shuffle: true")
    first, same, other = (reader(text, seed=seed).labels(1) for seed in (1, 1, 2))
    assert first == same != other
    assert sorted(first) == sorted(other)


def test_rand_skip_starts_later(reader: Make) -> None:
    plain = reader(data("digits_test_lmdb", "batch_size: 100")).labels(1)
    starts = set()
    for seed in range(8):
        labels = reader(data("digits_test_lmdb", "batch_size: 100 rand_skip: 5"), seed=seed).labels(1)
        starts |= {skip for skip in range(100) if labels == plain[skip:] + plain[:skip]}
    assert starts <= set(range(5))
    assert len(starts) > 1


def test_an_lmdb_is_read_although_the_text_says_leveldb(reader: Make, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "bpt"):
        net = reader('layer { name: "d" type: "Data" top: "x" data_param { source: "float_lmdb" batch_size: 1 } }')
    assert caplog.messages == ['layer "d": "float_lmdb" is read as the LMDB that it is; set backend: LMDB']
    assert net.next()[0].shape == (1, 1, 28, 28)


def test_transformations_of_the_old_format(reader: Make, caplog: pytest.LogCaptureFixture) -> None:
    """In a net of 2014 they are meant; in today's, Caffe passes over them, and so are the numbers of its nets."""
    old = "batch_size: 3 crop_size: 21 scale: 0.5"
    with caplog.at_level(logging.WARNING, "bpt"):
        today = reader(data("digits_test_lmdb", old), phase=pb.TEST).next()[0]
    assert caplog.messages == [
        f'layer "d": data_param.{name} has no effect, as in Caffe; write it in transform_param'
        for name in ("scale", "crop_size")
    ]
    assert torch.equal(today, reader(data("digits_test_lmdb", "batch_size: 3"), phase=pb.TEST).next()[0])

    param = f'data_param {{ source: "digits_test_lmdb" backend: LMDB {old} }}'
    net = text_format.Parse(f'layers {{ name: "d" type: DATA top: "x" top: "y" {param} }}', pb.NetParameter())
    upgrade_net(net, {}, "net.prototxt")
    meant = reader(text_format.MessageToString(net), phase=pb.TEST).next()[0]
    np.testing.assert_array_equal(meant.numpy(), RECORDED["data_centercrop_odd/s0/data"] * np.float32(0.5))


def test_images_of_any_size_one_by_one(reader: Make, tmp_path: Path) -> None:
    shapes = [(1, 4, 4), (3, 2, 5)]
    source = write_images(tmp_path / "db", [np.zeros(shape, np.uint8) for shape in shapes])
    net = reader(data(source, "batch_size: 1"))
    assert [net.next()[0].shape for _ in range(2)] == [(1, *shape) for shape in shapes]


def test_a_bad_record_later_on_names_path_and_key(reader: Make, tmp_path: Path) -> None:
    shapes = [(1, 4, 4)] * 5 + [(1, 4, 6)]
    source = write_images(tmp_path / "db", [np.zeros(shape, np.uint8) for shape in shapes])
    net = reader(data(source, "batch_size: 2"))
    assert net.labels(2) == [0, 1, 2, 3]
    with pytest.raises(DataError, match=f'{source}: record "00000005" gives 1×4×6, but "00000004"'):
        net.next()
    assert net.layer.position == 4


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (data("digits_test_lmdb", ""), "data_param needs a batch_size of at least 1"),
        (data("", "batch_size: 1"), "data_param needs a source"),
        (data("digits_test_lmdb", "batch_size: 1 prefetch: 0"), "prefetch must be at least 1"),
        (data("nope_lmdb"), r"nope_lmdb: no such folder \(looked for /.*/golden/data/nope_lmdb\)"),
        (
            data("color_lmdb", outer="transform_param { crop_size: 29 }"),
            "crop_size 29 is larger than the image 3×28×28",
        ),
        (data("color_lmdb", outer='transform_param { mean_file: "nope" }'), "nope: no such file"),
        (data("color_lmdb", outer="transform_param { num_workers: 999 }"), "num_workers can be at most 256"),
    ],
)
def test_wrong_texts_name_the_layer(text: str, message: str, reader: Make) -> None:
    with pytest.raises(LayerError, match=f'layer "d": {message}'):
        reader(text)


def test_how_long_a_pass_waits(reader: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([1.0, 3.5, 10.0, 10.25])
    monkeypatch.setattr("bpt.nn.layers.prefetching.time.perf_counter", lambda: next(clock))
    net = reader(data("digits_test_lmdb"))
    assert net.layer.waited == 0
    net.next()
    assert net.layer.waited == 2.5
    net.next()
    assert net.layer.waited == 0.25


def test_workers_decode_and_change_nothing(reader: Make, caplog: pytest.LogCaptureFixture) -> None:
    outer = "transform_param { crop_size: 10 mirror: true scale: 0.5 num_workers: %d }"
    with caplog.at_level(logging.WARNING, "bpt"):
        alone, *others = (
            reader(data("encoded_lmdb", "batch_size: 3 shuffle: true", outer % count)) for count in (1, 2, 5, 0)
        )
    assert not caplog.messages
    for _ in range(5):
        batch = alone.next()
        assert all(all(map(torch.equal, other.next(), batch)) for other in others)


def test_workers_have_nothing_to_do_for_raw_records(
    reader: Make, caplog: pytest.LogCaptureFixture, started: Started
) -> None:
    with caplog.at_level(logging.WARNING, "bpt"):
        net = reader(data("digits_test_lmdb", outer="transform_param { num_workers: 4 }"))
    assert caplog.messages == [
        'layer "d": num_workers: 4 has no effect: its records are not encoded, and one thread reads them quickest'
    ]
    net.next()
    assert started() == ["bpt prefetch"]


def test_threads_end_with_the_net(reader: Make, started: Started) -> None:
    net = reader(data("encoded_lmdb", "batch_size: 9", "transform_param { num_workers: 3 }"))
    assert started() == []
    net.next()
    names = set(started())  # as many workers as were needed
    assert {"bpt prefetch", "bpt worker_0"} <= names <= {"bpt prefetch", *(f"bpt worker_{n}" for n in range(3))}
    net.net.close()
    assert started() == []


@pytest.mark.parametrize("workers", [1, 4])
def test_a_damaged_image_names_path_and_key(reader: Make, tmp_path: Path, workers: int) -> None:
    good = (FOLDER / "images/same0.png").read_bytes()
    with LmdbWriter(tmp_path / "db") as writer:
        for content in (good, good, good, good[:80], b"no image", good):
            writer.put(pb.Datum(data=content, encoded=True))
    net = reader(data(tmp_path / "db", "batch_size: 3", f"transform_param {{ num_workers: {workers} }}"))
    net.next()
    for _ in range(2):
        with pytest.raises(DataError, match=r'db: record "00000003": a damaged image file'):
            net.next()
    assert net.layer.position == 3


@pytest.mark.gpu
def test_batches_are_pinned_once_the_run_uses_a_gpu(reader: Make) -> None:
    torch.cuda.init()
    assert all(blob.is_pinned() for blob in reader(data("digits_test_lmdb")).next())
