"""Paths that were written on Windows."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image

from bpt.base.errors import BptError
from bpt.base.native_paths import base_name, native_path, native_prefix, windows_hint
from bpt.config.proto import bpt_pb2 as pb
from bpt.config.proto.native_fields import use_native_paths
from bpt.config.proto.sources import read_net, read_solver
from bpt.data.hdf5_file import listed
from bpt.data.image_source import ImageSource
from bpt.train.state.resuming import learned_net

BACKSLASHED = "in\\deep\\a.txt"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def deep() -> Path:
    folder = Path("in/deep")
    folder.mkdir(parents=True)
    (folder / "a.txt").write_text("x")
    return folder


def test_a_path_that_exists_only_with_slashes(deep: Path) -> None:
    assert native_path(BACKSLASHED) == "in/deep/a.txt"
    assert native_path("deep\\a.txt", ("", "in")) == "deep/a.txt"
    assert native_path("in\\none") == "in\\none"


def test_a_name_with_backslashes_stays(deep: Path) -> None:
    Path(BACKSLASHED).write_text("mine")
    assert native_path(BACKSLASHED) == BACKSLASHED


@pytest.mark.parametrize(
    ("path", "name"), [("D:\\w\\t.h5", "t.h5"), ("/a/b", "b"), ("a\\b/c", "c"), ("D:/w/t", "t"), ("t", "t")]
)
def test_base_names(path: str, name: str) -> None:
    assert base_name(path) == name


@pytest.mark.parametrize(("path", "hinted"), [("D:\\x", True), ("D:/x", True), ("a\\b", True), ("/a/b", False)])
def test_hints(path: str, hinted: bool) -> None:
    assert bool(windows_hint(path)) == hinted


def test_texts(deep: Path) -> None:
    Path("net.prototxt").write_text(
        'layer { name: "d" type: "ImageData" top: "x" image_data_param { source: "in\\\\deep\\\\a.txt" '
        'root_folder: "in\\\\" } transform_param { mean_file: "in\\\\gone" } }'
    )
    source = read_net("net.prototxt")
    layer = source.param.layer[0]
    assert layer.image_data_param.source == "in/deep/a.txt"
    assert layer.image_data_param.root_folder == "in/"
    assert layer.transform_param.mean_file == "in\\gone"
    assert any("in/deep/a.txt" in note for note in source.notes)


def test_a_solver(deep: Path) -> None:
    Path("in/net.prototxt").write_text("")
    Path("s.prototxt").write_text('net: "in\\\\net.prototxt" snapshot_prefix: "in\\\\deep\\\\t"')
    source = read_solver("s.prototxt")
    assert (source.param.net, source.param.snapshot_prefix) == ("in/net.prototxt", "in/deep/t")
    assert len(source.notes) == 2


def test_a_prefix_under_which_there_are_snapshots_stays(deep: Path) -> None:
    Path("in\\deep\\t_iter_5.solverstate").touch()
    assert native_prefix("in\\deep\\t") == "in\\deep\\t"
    assert native_prefix("none\\t") == "none\\t"


def test_fields_that_are_no_paths_stay(deep: Path) -> None:
    net = pb.NetParameter(name="in\\deep", layer=[{"name": "in\\deep", "top": ["in\\deep"]}])
    before = net.SerializeToString()
    assert not use_native_paths(net, "")
    assert net.SerializeToString() == before


@pytest.mark.parametrize(
    "written", ["D:\\work\\t_iter_5.caffemodel", "D:/work/t_iter_5.caffemodel", "t_iter_5.caffemodel"]
)
def test_weights_beside_their_state(written: str, tmp_path: Path) -> None:
    (tmp_path / "t_iter_5.caffemodel").touch()
    state = pb.SolverState(learned_net=written)
    assert learned_net(state, str(tmp_path / "t_iter_5.solverstate")) == str(tmp_path / "t_iter_5.caffemodel")


def test_weights_whose_name_has_a_backslash(tmp_path: Path) -> None:
    (tmp_path / "a\\t.caffemodel").touch()
    (tmp_path / "t.caffemodel").touch()
    state = pb.SolverState(learned_net="a\\t.caffemodel")
    assert learned_net(state, str(tmp_path / "t.solverstate")) == str(tmp_path / "a\\t.caffemodel")


def test_images_of_a_list(deep: Path) -> None:
    Image.new("RGB", (4, 4)).save(deep / "a.png")
    Path("list.txt").write_text("in\\deep\\a.png 3\nD:\\pictures\\b.png 1\n")
    source = ImageSource("list.txt")
    assert source.read(0).label == 3
    with pytest.raises(BptError, match="path of Windows"):
        source.read(1)


def test_files_of_an_hdf5_list(deep: Path) -> None:
    Path("list.txt").write_text("in\\deep\\a.txt\n")
    assert listed("list.txt") == [Path("in/deep/a.txt")]
    Path("in/list.txt").write_text("deep\\a.txt\n")
    assert listed("in/list.txt") == [Path("in/deep/a.txt")]
    Path("list.txt").write_text("D:\\a.h5\n")
    with pytest.raises(BptError, match="path of Windows"):
        listed("list.txt")
