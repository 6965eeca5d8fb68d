"""Files that are something else: each reader says what they are."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

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
from tests.support.foreign_files import OTHERS
from tests.support.paths import GOLDEN


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
