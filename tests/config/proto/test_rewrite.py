"""Files in old formats are written anew as Caffe's upgrade tools write them."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from bpt.base.errors import FileError, PrototxtError
from bpt.base.origin import Origin
from bpt.config.proto import bpt_pb2 as pb
from bpt.config.proto.rewrite import report, rewrite_net_binary, rewrite_net_text, rewrite_solver_text
from bpt.config.proto.upgrade import Note
from tests.config.proto.recorded_upgrades import NAMES
from tests.support.golden_files import UPGRADE


@pytest.mark.parametrize(
    ("rewrite", "name", "notes"),
    [
        *((rewrite_net_text, f"{name}.prototxt", None) for name in NAMES),
        (rewrite_solver_text, "solver_v1.prototxt", 1),
        (rewrite_net_binary, "v1_weights.caffemodel", 1),
    ],
)
def test_as_caffe_writes_it(
    rewrite: Callable[[Path, Path], list[Note]], name: str, notes: int | None, tmp_path: Path
) -> None:
    """Byte by byte; and what was written stays as it is."""
    new, old = tmp_path / "new", UPGRADE / name
    told = rewrite(old, new)
    assert told and notes in (None, len(told))
    expected = old.with_suffix(f".upgraded{old.suffix}").read_bytes()
    assert new.read_bytes() == expected
    assert rewrite(new, new) == []
    assert new.read_bytes() == expected


def test_weights_of_v0(tmp_path: Path) -> None:
    old = pb.NetParameter(name="n", input=["x"])
    layer = old.layers.add(bottom=["x"], top=["y"])
    layer.layer.name, layer.layer.type, layer.layer.kernelsize = "c", "conv", 3
    layer.layer.blobs.add(num=1, channels=1, height=1, width=2, data=[1, 2])
    (tmp_path / "old").write_bytes(old.SerializeToString())
    assert len(rewrite_net_binary(tmp_path / "old", tmp_path / "new")) == 3
    new = pb.NetParameter(name="n")
    conv = new.layer.add(name="c", type="Convolution", bottom=["x"], top=["y"])
    conv.convolution_param.kernel_size.append(3)
    conv.blobs.append(layer.layer.blobs[0])
    assert pb.NetParameter.FromString((tmp_path / "new").read_bytes()) == new


def test_what_cannot_be_upgraded_is_not_written(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    old.write_text('name: "n"\nlayers { layer { type: "what" } }')
    with pytest.raises(PrototxtError, match=r'old:2:18: layer "": unknown layer type "what"'):
        rewrite_net_text(old, new)
    message = pb.NetParameter()
    message.layers.add().layer.type = "what"
    old.write_bytes(message.SerializeToString())
    with pytest.raises(FileError) as caught:
        rewrite_net_binary(old, new)
    assert str(caught.value) == f'{old}: layer "": unknown layer type "what"'
    with pytest.raises(PrototxtError, match="keep one of them"):
        rewrite_solver_text(UPGRADE / "solver_both_type_fields.prototxt", new)
    assert not new.exists()


@pytest.mark.parametrize("format_of", ["V0", "V1"])
def test_weights_with_a_name_that_is_no_text(format_of: str, tmp_path: Path) -> None:
    message = pb.NetParameter()
    layer = message.layers.add()
    (layer.layer if format_of == "V0" else layer).name = "AAAA"
    (tmp_path / "old").write_bytes(message.SerializeToString().replace(b"AAAA", b"\xff\xfeAA"))
    with pytest.raises(FileError) as caught:
        rewrite_net_binary(tmp_path / "old", tmp_path / "new")
    assert str(caught.value) == f"{tmp_path}/old: has names or other texts that are not UTF-8"


def test_files_of_another_kind(tmp_path: Path) -> None:
    shutil.copy(UPGRADE / "solver_v1.prototxt", tmp_path / "s")
    shutil.copy(UPGRADE / "v1_deploy.prototxt", tmp_path / "n")
    shutil.copy(UPGRADE / "v1_weights.caffemodel", tmp_path / "w")
    new = tmp_path / "new"
    for rewrite, name, words in (
        (rewrite_net_text, "s", "is the text of a solver, not a network"),
        (rewrite_net_text, "w", r"is a binary file of weights \(caffemodel\), not a prototxt"),
        (rewrite_solver_text, "n", "is the text of a network, not a solver"),
        (rewrite_net_text, "", "is a folder, not a file"),
        (rewrite_solver_text, "missing", "no such file"),
    ):
        with pytest.raises(PrototxtError, match=words):
            rewrite(tmp_path / name, new)
    for name, words in (("n", "is a text file"), ("", "is a folder, not a file"), ("missing", "no such file")):
        with pytest.raises(FileError, match=words):
            rewrite_net_binary(tmp_path / name, new)
    with pytest.raises(FileError, match="cannot be written: it is a folder"):
        rewrite_net_text(tmp_path / "n", tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["n", "s", "w"]


def test_report() -> None:
    assert report("X", "old", "new", []) == (["File already in latest proto format: old", "Wrote upgraded X to new"], 0)
    place = Origin("old", 2, 1)
    assert report("X", "old", "new", [Note("done")]) == (["old: done", "Wrote upgraded X to new"], 0)
    assert report("X", "old", "new", [Note("lost", place, lossy=True), Note("done", place)]) == (
        [
            "old:2:1: lost",
            "old:2:1: done",
            "Encountered one or more problems upgrading; see above.",
            "Wrote upgraded X to new",
        ],
        1,
    )
