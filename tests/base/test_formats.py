"""Files that are something else: each reader says what they are."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import pickle
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from bpt.apps.convert.layer_arrays import read_weights as read_arrays
from bpt.base.errors import BptError, FileError
from bpt.base.formats import recognise
from bpt.config.proto import bpt_pb2 as pb
from bpt.config.proto.binary_files import kind_of, recognise_format
from bpt.config.proto.sources import read_net, read_solver
from bpt.data.image_source import ImageSource
from bpt.data.lmdb_file import open_lmdb
from bpt.data.transform import read_mean
from bpt.train.state.resuming import read_state
from bpt.train.state.weights import open_weights
from tests.support.golden_files import GOLDEN


def _archive() -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("deploy.prototxt", "name: 'a'")
    return out.getvalue()


def _tar() -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("net.caffemodel"))
    return out.getvalue()


def _torch(zipped: bool) -> bytes:
    out = io.BytesIO()
    torch.save({"w": torch.zeros(3)}, out, _use_new_zipfile_serialization=zipped)
    return out.getvalue()


def _npz() -> bytes:
    out = io.BytesIO()
    np.savez(out, a=np.zeros(3))
    return out.getvalue()


def _npy() -> bytes:
    out = io.BytesIO()
    np.save(out, np.zeros(3))
    return out.getvalue()


SAFETENSORS_HEADER = json.dumps({"ip/0": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
OTHERS: dict[str, tuple[bytes, str]] = {
    "lfs": (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1000\n", "Git LFS pointer"),
    "annex": (b"/annex/objects/SHA256E-s12--00.caffemodel\n", "git-annex pointer"),
    "html": (b"<!DOCTYPE html><html><head><title>Quota exceeded</title></head></html>", "HTML page"),
    "html after a comment": (b"\n<!-- a -->\n<HTML lang=en>", "HTML page"),
    "xml": (b'<?xml version="1.0"?><Error><Code>NoSuchKey</Code></Error>', "XML file"),
    "gzip": (gzip.compress(b"x" * 99), "gzip file"),
    "bzip2": (bz2.compress(b"x" * 99), "bzip2 file"),
    "xz": (lzma.compress(b"x" * 99), "xz file"),
    "zstd": (b"\x28\xb5\x2f\xfd\x04\x00\x01\x00\x00", "zstd file"),
    "7z": (b"7z\xbc\xaf\x27\x1c\x00\x04", "7z archive"),
    "rar": (b"Rar!\x1a\x07\x01\x00", "RAR archive"),
    "zip": (_archive(), "zip archive"),
    "tar": (_tar(), "tar archive"),
    "onnx, its start": (b"\x08\x07\x12\x07pytorch", "ONNX model"),
    "onnx": (b"\x08\x08\x12\x04mine\x1a\x011:\x04\x0a\x02ab\x42\x04\x0a\x00\x10\x11", "ONNX model"),
    "torch": (_torch(True), "torch"),
    "torch, old": (_torch(False), "torch"),
    "pickle": (pickle.dumps({"a": 1}), "pickle"),
    "npy": (_npy(), "numpy"),
    "npz": (_npz(), "numpy"),
    "safetensors": (len(SAFETENSORS_HEADER).to_bytes(8, "little") + SAFETENSORS_HEADER + bytes(4), "safetensors"),
    "json": (b'{"format": "layers-model"}', "JSON"),
    "png": (b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR", "PNG image"),
    "jpeg": (b"\xff\xd8\xff\xe0\x00\x10JFIF", "JPEG image"),
    "pdf": (b"%PDF-1.4\n", "PDF"),
    "tflite": (b"\x1c\0\0\0TFL3\0\0", "TensorFlow Lite"),
    "darknet": (b"\0\0\0\0\2\0\0\0\5\0\0\0" + bytes(20), "Darknet"),
    "zeros": (bytes(1000), "zeros"),
}


def _drained(path: str) -> None:
    with open_weights(path):
        pass


READERS: dict[str, Callable[[str], object]] = {
    "weights": _drained,
    "convert": read_arrays,
    "state": read_state,
    "mean": read_mean,
    "net": read_net,
    "solver": read_solver,
}


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize("reader", READERS)
def test_every_reader_says_what_a_file_is(name: str, reader: str, tmp_path: Path) -> None:
    content, what = OTHERS[name]
    if (name, reader) == ("safetensors", "convert"):
        pytest.skip("bpt convert reads safetensors by any name")
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(BptError) as caught:
        READERS[reader](str(path))
    assert str(caught.value).startswith(f"{path}: is ") and what in str(caught.value)
    assert caught.value.exit_status == 2


@pytest.mark.parametrize("name", [name for name in OTHERS if name not in ("json",)])
def test_lists_and_databases_say_it_too(name: str, tmp_path: Path) -> None:
    content, what = OTHERS[name]
    if name.startswith("onnx"):
        pytest.skip("the outline of a message is looked at only where messages are read")
    (tmp_path / "list.txt").write_bytes(content)
    with pytest.raises(FileError, match=what):
        ImageSource(str(tmp_path / "list.txt"))
    (tmp_path / "data.mdb").write_bytes(content.ljust(8192, b"\0") if name not in ("tar", "zeros") else content)
    with pytest.raises(FileError):
        open_lmdb(str(tmp_path))


def test_an_image_that_is_a_pointer(tmp_path: Path) -> None:
    (tmp_path / "a.jpg").write_bytes(OTHERS["lfs"][0])
    (tmp_path / "list.txt").write_text(f"{tmp_path}/a.jpg 0\n")
    with pytest.raises(BptError, match="no image file but a Git LFS pointer"):
        ImageSource(str(tmp_path / "list.txt")).read(0)


def test_safetensors_by_another_name(tmp_path: Path) -> None:
    pytest.importorskip("safetensors")
    (tmp_path / "net.caffemodel").write_bytes(OTHERS["safetensors"][0])
    (layer,) = read_arrays(str(tmp_path / "net.caffemodel")).layers
    assert layer.name == "ip" and layer.blobs[0].tolist() == [0.0]


@pytest.mark.parametrize(
    "path",
    [
        path
        for ending in ("caffemodel", "solverstate", "binaryproto", "prototxt")
        for path in GOLDEN.glob(f"**/*.{ending}")
    ],
    ids=lambda path: path.name,
)
def test_no_file_of_caffe_is_taken_for_another(path: Path) -> None:
    content = path.read_bytes()
    assert recognise_format(content) is None


@pytest.mark.parametrize(
    "state",
    [
        pb.SolverState(iter=7, learned_net="pytorch/net_iter_7.caffemodel"),
        pb.SolverState(iter=1, learned_net="caffe2"[:5]),
        pb.SolverState(iter=5, learned_net="D:\\work\\t_iter_5.caffemodel", history=[pb.BlobProto(data=[1])]),
    ],
)
def test_states_stay_states(state: pb.SolverState) -> None:
    assert kind_of(state.SerializeToString()) == "solverstate"


def test_a_message_of_tensorflow_is_no_state() -> None:
    saved_model = b"\x08\x01\x12\x08\x0a\x06\x12\x04\x08\x01\x10\x02"
    assert kind_of(saved_model) == "unknown"


def test_weights_of_one_layer_that_are_cut(tmp_path: Path) -> None:
    content = pb.NetParameter(name="n", layer=[{"name": "ip", "blobs": [pb.BlobProto(data=[1.0] * 99)]}])
    (tmp_path / "cut").write_bytes(content.SerializeToString()[:200])
    with pytest.raises(FileError, match="damaged or truncated"):
        _drained(str(tmp_path / "cut"))


def test_nothing_is_nothing() -> None:
    assert recognise(b"", 0) is None
