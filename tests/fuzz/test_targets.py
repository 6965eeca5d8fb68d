"""Odd files of each kind are taken or refused: no traceback, no warning, no hang, no unbounded memory."""

from __future__ import annotations

import gzip
import io
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest
from google.protobuf.message import Message

from bpt.base.errors import RunError
from bpt.config.plan.nets import file_plan
from bpt.config.proto import bpt_pb2 as pb
from bpt.data.labelled_pixels import LabelsOf
from bpt.nn.net_graph import build_graph_of
from bpt.system.device import CPU
from bpt.train.runtime import net_on_device as making
from tests.fuzz.engine import MIB, Target, run_cases, run_one
from tests.fuzz.targets import TARGETS
from tests.fuzz.targets.binary import DataSets, Hdf5States, Hdf5Weights, Means, States, Weights
from tests.fuzz.targets.forks import AnnotationFiles, ClipLists, LabelMaps, PixelLists
from tests.fuzz.targets.images import Images
from tests.fuzz.targets.lists import Hdf5Files, Hdf5Lists, ImageLists, Logs, VolumeLists, WindowFiles
from tests.fuzz.targets.records import Datums
from tests.fuzz.targets.text import Clusters, NetTexts


@pytest.mark.parametrize("kind", TARGETS.values(), ids=TARGETS)
def test_odd_files_are_taken_or_refused(kind: type[Target], tmp_path: Path) -> None:
    run_cases(kind(tmp_path), 1, range(kind.short))


def _hdf5(fill: Callable[[h5py.File], object]) -> bytes:
    content = io.BytesIO()
    with h5py.File(content, "w") as file:
        fill(file)
    return content.getvalue()


def _endless(file: h5py.File) -> None:
    """A group that holds itself twice."""
    group = file.create_group("data/a")
    group["b"] = group["c"] = h5py.SoftLink("/data")


def _announcing(file: h5py.File) -> None:
    """A blob of four terabytes, none of which is there."""
    file["iter"] = file["current_step"] = np.array([1], np.int32)
    file["learned_net"] = np.bytes_("snap_iter_10.caffemodel.h5")
    file.create_dataset("history/0", (2**40,), np.float32, chunks=(1024,))


def _number(file: h5py.File) -> None:
    """A blob without axes."""
    file["iter"] = file["current_step"] = np.array([1], np.int32)
    file["learned_net"] = np.bytes_("snap_iter_10.caffemodel.h5")
    file["history/0"] = np.float32(1)


def _png(side: int, data: bytes) -> bytes:
    head = b"IHDR" + struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    chunks = (head, b"IDAT" + data, b"IEND")
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(chunk) - 4) + chunk + struct.pack(">I", zlib.crc32(chunk)) for chunk in chunks
    )


def _huge(file: h5py.File) -> None:
    """Rows of terabytes, none of which are there."""
    file.create_dataset("data", (2**40, 3), np.float32, chunks=(1024, 3))
    file.create_dataset("label", (2**40,), np.float32, chunks=(1024,))


@pytest.mark.parametrize(
    ("kind", "case"),
    [
        (Means, pb.BlobProto(num=2**31 - 1, channels=2**31 - 1, height=2**31 - 1, width=1, data=[1])),
        (Means, pb.BlobProto(num=1, channels=2**31 - 1, height=2**31 - 1, width=0)),
        (Weights, pb.NetParameter(layer=[{"name": "conv1", "blobs": [{"shape": {"dim": [2**62] * 4}}]}])),
        (States, pb.SolverState(iter=1, learned_net="x" * 10**6)),
        (States, pb.SolverState(iter=1, learned_net="x", history=[{"shape": {"dim": [2**62]}}])),
        (Hdf5Weights, _hdf5(lambda file: file.create_dataset("data/conv1/0", (2**40,), np.float32, chunks=(9,)))),
        (Hdf5Weights, _hdf5(lambda file: file.create_group("data/" + "a/" * 3000))),
        (Hdf5Weights, _hdf5(_endless)),
        (Hdf5States, _hdf5(_announcing)),
        (Hdf5States, _hdf5(_number)),
        (AnnotationFiles, b"2 4 5 20 1e300"),
        (AnnotationFiles, b'{"image": {"height": 1%s, "width": 2}, "annotation": []}' % (b"0" * 400)),
        (AnnotationFiles, b"<annotation><object><name>%s</name><bndbox/></object></annotation>" % (b"a" * 10**5)),
        (AnnotationFiles, b"[" * 10**5),
        (AnnotationFiles, b"<a>" * 10**5),
        (LabelMaps, b'item { name: "a" label: 1 } ' * 2),
        (ClipLists, b"video 1 " + b"1" * 5000),
        (ClipLists, b"video " + b"1" * 400 + b" 1"),
        (PixelLists, b"im0.png " + b"1" * 5000),
        (ImageLists, b"a " * 10**5),
        (ImageLists, b"a" * 10**5 + b" 1"),
        (ImageLists, b"a " + b"1" * 10**6),
        (Hdf5Lists, b"a" * 10**5),
        (WindowFiles, b"# 0\nimages/im0.png\n3\n8\n8\n999999999\n1 0.9 0 0 3 3\n"),
        (WindowFiles, b"# 0\n" + b"i" * 10**5 + b"\n3\n8\n8\n1\n1 0.9 0 0 3 3\n"),
        (VolumeLists, b"a " * 10**5),
        (VolumeLists, b"a" + b" " * 10**5 + b"b"),
        (VolumeLists, b"a " + b"1" * 10**6),
        (Logs, b"Iteration 1 (" * 10**5),
        (Logs, b"Iteration 1\n" + b"Test net output #1: " * 10**4),
        (Hdf5Files, _hdf5(_huge)),
        (Datums, pb.Datum(channels=2**31 - 1, height=2**31 - 1, width=2**31 - 1, data=b"1")),
        (Datums, pb.Datum(channels=0, height=2**31 - 1, width=2**31 - 1)),
        (Datums, pb.Datum(encoded=True, data=b"\x89PNG\r\n\x1a\n")),
        (Clusters, b"node { count: 2147483647 samples_per_second: 3 }"),
        # Pillow warns of images that say that they are huge, or raises an error of its own.
        *((Images, _png(side, zlib.compress(b"\0" * 4096))) for side in (10_000, 13_000, 20_000, 2**31 - 1)),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else "",
)
def test_files_that_announce_more_than_they_hold(kind: type[Target], case: bytes | Message, tmp_path: Path) -> None:
    """Long lines, large numbers, deep nests, and files that say that they are huge: refused before memory is taken."""
    content = case if isinstance(case, bytes) else case.SerializeToString()
    if kind is PixelLists:
        content += b"\n" * ((list(LabelsOf).index(LabelsOf.IMAGE) - len(content)) % len(LabelsOf))
    assert run_one(kind(tmp_path), content).refused


def test_a_packed_file_that_swells_is_read_no_further_than_it_says(tmp_path: Path) -> None:
    target = DataSets(tmp_path)
    target.suffix = ".gz"
    target.memory = 16 * MIB
    swelling = gzip.compress(b"\0\0\x08\x01\0\0\0\x02" + bytes(2**27), 1)
    assert run_one(target, swelling).refused


@pytest.mark.parametrize(
    ("layer", "words"),
    [
        (
            'type: "Input" top: "y" input_param { shape { dim: 9999999999 dim: 9999999999 } }',
            'layer "L": top "y" of shape (9999999999, 9999999999) takes 372529029771.7 GiB',
        ),
        (
            'type: "DummyData" top: "y" dummy_data_param { shape { dim: 9999999999 dim: 999 } }',
            'layer "L": top "y" of shape (9999999999, 999) takes 37215.7 GiB',
        ),
        (
            'type: "InnerProduct" bottom: "x" top: "y" inner_product_param { num_output: 4294967295 }',
            'layer "L": parameter 0 of shape (4294967295, 3) takes 48.0 GiB',
        ),
        (
            'type: "Tile" bottom: "x" top: "y" tile_param { tiles: 2147483647 }',
            'layer "L": top "y" of shape (2, 6442450941) takes 48.0 GiB',
        ),
    ],
)
def test_what_no_memory_holds_is_refused_by_layer_and_size(
    layer: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before any of it is allocated."""
    monkeypatch.setattr(making, "obtainable_memory", lambda device: 16 * 2**30)
    first = 'layer { name: "in" type: "Input" top: "x" input_param { shape { dim: 2 dim: 3 } } } '
    text = f'{first if "bottom" in layer else ""}layer {{ name: "L" {layer} }}'
    tmp_path.joinpath("net.prototxt").write_text(text)
    graph = build_graph_of(file_plan(str(tmp_path / "net.prototxt"), pb.TRAIN))
    with pytest.raises(RunError) as caught:
        making.make_net(graph, CPU)
    assert str(caught.value) == f"{words}, but the device has 16.0 GiB of memory"


_INPUT = 'layer { name: "d" type: "Input" top: "x" input_param { shape { dim: 2 dim: 3 } } }\n'
_POWER = _INPUT + 'layer { name: "p" type: "Power" bottom: "x" top: "y" power_param { scale: %s } }'


@pytest.mark.parametrize(
    ("text", "is_refused"),
    [
        ("layer { " * 20_000, True),
        ("layer { convolution_param { weight_filler { " * 5000, True),
        ("input_dim: " + "[" * 20_000, True),
        ("input_dim: " + "1" * 10**6, True),
        (_POWER % ("1" * 10**6), True),  # infinite, as the next but one
        (_POWER % ("0." + "1" * 10**6), False),
        (_POWER % ("1e" + "1" * 10**6), True),
        ("a" * 10**6 + ": 3", True),
        ('name: "' + "a" * 10**6, True),
        ('name: "' + r"\x41" * 10**5 + '"', True),
        ("name: " + '"a" ' * 20_000, True),
        ("#" * 10**6, True),
        (_INPUT + 'layer { name: "' + "a" * 10**5 + '" type: "ReLU" bottom: "q" top: "y" }', True),
        (_INPUT + 'layer { name: "r" type: "' + "a" * 10**5 + '" bottom: "x" top: "y" }', True),
        (_INPUT + 'layer { name: "c" type: "Concat" ' + 'bottom: "x" ' * 2000 + 'top: "y" }', False),
        (_INPUT.replace("dim: 3", "dim: 9223372036854775807 " * 30), False),
        (_INPUT.replace("dim: 3", "dim: 1 " * 2000), True),
    ],
    ids=range(17),
)
def test_texts_that_say_too_much(text: str, is_refused: bool, tmp_path: Path) -> None:
    """Nesting, long numbers, names and lists: nothing that takes more than its length."""
    assert run_one(NetTexts(tmp_path), text.encode()).refused == is_refused
