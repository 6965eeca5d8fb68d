"""Snapshots are written whole or not at all, and what stands in the way is said before training."""

from __future__ import annotations

import errno
import os
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bpt.base.errors import FileError, WriteError
from bpt.base.violation import Violation
from bpt.train import state as snapshot
from tests.support.full_disk import contents, full_disk, small_files_only
from tests.support.small_states import Small, net_of, values
from tests.support.training import solver_of

FORMATS = {"binary": ("", ""), "HDF5": ("snapshot_format: HDF5", ".h5")}


@pytest.fixture(params=FORMATS)
def made(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Small, str]:
    """A net with its solver in an empty current folder, and the suffix of its format."""
    monkeypatch.chdir(tmp_path)
    text, suffix = FORMATS[request.param]
    return Small.make(text), suffix


def test_file_that_cannot_be_written(made: tuple[Small, str]) -> None:
    small, suffix = made
    with pytest.raises(WriteError) as caught, small_files_only():
        small.snap(1)
    reason = os.strerror(errno.EFBIG)
    assert str(caught.value) == f"snap_iter_1.caffemodel{suffix}: could not be written: {reason}"
    assert contents() == {}


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="finds out a file's name by /proc")
@pytest.mark.parametrize("failing", ["caffemodel", "solverstate"])
def test_full_disk_leaves_the_old_snapshot(
    made: tuple[Small, str], failing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    small, suffix = made
    small.snap(5)
    before = contents()
    full_disk(monkeypatch, failing)
    with pytest.raises(WriteError) as caught:
        small.snap(5)
    assert str(caught.value) == f"snap_iter_5.{failing}{suffix}: could not be written: No space left on device"
    assert contents() == before


def test_a_missing_folder_is_made(made: tuple[Small, str]) -> None:
    small, suffix = made
    small.plan = replace(small.plan, snapshot_prefix="new/folder/snap")
    assert small.snap(1) == f"new/folder/snap_iter_1.solverstate{suffix}"
    assert Path(f"new/folder/snap_iter_1.caffemodel{suffix}").is_file()


def test_a_folder_that_cannot_be_made(made: tuple[Small, str]) -> None:
    small, suffix = made
    Path("file").touch()
    small.plan = replace(small.plan, snapshot_prefix="file/snap")
    with pytest.raises(WriteError) as caught:
        small.snap(1)
    assert str(caught.value) == f"file/snap_iter_1.caffemodel{suffix}: could not be written: File exists"


def test_layer_names_that_hdf5_cannot_hold(tmp_path: Path) -> None:
    net = net_of(
        """
        layer { name: "in" type: "Input" top: "x" input_param { shape { dim: 2 dim: 3 } } }
        layer { name: "a" type: "InnerProduct" bottom: "x" top: "a" inner_product_param { num_output: 4 } }
        layer { name: "a/0" type: "InnerProduct" bottom: "a" top: "b" inner_product_param { num_output: 2 } }
        """
    )
    path = str(tmp_path / "w.h5")
    with pytest.raises(WriteError, match="could not be written: not possible in HDF5: "):
        snapshot.save_weights(net, path)
    assert list(tmp_path.iterdir()) == []
    snapshot.save_weights(net, str(tmp_path / "w.caffemodel"))


def without_h5py(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "h5py", None)


def test_hdf5_without_h5py(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    net = net_of()
    path = str(tmp_path / "w.h5")
    snapshot.save_weights(net, path)
    without_h5py(monkeypatch)
    calls: list[Callable[[Any, str], object]] = [snapshot.save_weights, snapshot.load_weights]
    for call in calls:
        with pytest.raises(FileError) as caught:
            call(net, path)
        assert str(caught.value) == f"{path}: HDF5 needs the package h5py: pip install 'bpt[hdf5]'"


@pytest.mark.parametrize(("folder", "text"), [("file", ""), ("file/new", "snapshot_after_train: false snapshot: 5")])
def test_check_finds_that_a_snapshot_could_not_be_written(
    folder: str, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file").touch()
    found = Violation(("snapshot_prefix",), f'cannot write to snapshot_prefix "{folder}/snap": "file" is not a folder')
    assert list(snapshot.violations(solver_of(f'snapshot_prefix: "{folder}/snap" {text}'))) == [found]


def test_check_accepts_what_works_or_is_not_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert not list(snapshot.violations(solver_of('snapshot_prefix: "snap"')))
    assert not list(snapshot.violations(solver_of('snapshot_prefix: "missing/snap" snapshot_after_train: false')))


def test_check_finds_that_nothing_can_be_created() -> None:
    """Not even by root, whom permissions allow all."""
    (found,) = snapshot.violations(solver_of('snapshot_prefix: "/proc/x/lenet"'))
    assert re.match(r'cannot write to snapshot_prefix "/proc/x/lenet": .*the folder "/proc"', found.message)


def test_check_finds_that_h5py_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = solver_of(f'snapshot_prefix: "{tmp_path}/snap" snapshot_format: HDF5')
    assert not list(snapshot.violations(plan))
    without_h5py(monkeypatch)
    (found,) = snapshot.violations(plan)
    assert found.field == ("snapshot_format",)
    assert found.message == "snapshot_format: HDF5 needs the package h5py: pip install 'bpt[hdf5]'"


def test_save_weights_chooses_the_format_by_name(tmp_path: Path) -> None:
    net = net_of()
    for name, start in (("w.caffemodel", b"\n\x05small"), ("w.caffemodel.h5", b"\x89HDF\r\n")):
        path = tmp_path / name
        snapshot.save_weights(net, str(path))
        assert path.read_bytes().startswith(start)
        other = net_of(seed=1)
        assert values(other) != values(net)
        snapshot.load_weights(other, str(path))
        assert values(other) == values(net)
