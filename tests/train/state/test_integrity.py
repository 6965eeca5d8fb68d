"""Snapshots do not lie: damage, files of different runs and diverged values are found before anything is taken."""

from __future__ import annotations

import logging
import os
import random
import shutil
from pathlib import Path

import pytest
import torch

from bpt.base.errors import FileError
from bpt.config.proto import bpt_pb2 as pb
from bpt.train import state as snapshot
from bpt.train.state.resuming import learned_net
from tests.support.small_states import Small

HDF5 = "snapshot_format: HDF5"
FORMATS = pytest.mark.parametrize(("text", "suffix"), [("", ""), (HDF5, ".h5")])


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@FORMATS
@pytest.mark.parametrize("part", ["caffemodel", "solverstate"])
def test_a_changed_byte_is_found_wherever_it_is(text: str, suffix: str, part: str) -> None:
    path = Small.make(text).snap(3, "one")
    snapshot.verify(path)
    file = Path(f"snap_iter_3.{part}{suffix}")
    good = file.read_bytes()
    chance = random.Random(1)
    # The first and last bytes all, since these say what the file is, and some in between.
    places = {*range(100), *range(len(good) - 100, len(good)), *(chance.randrange(len(good)) for _ in range(100))}
    for place in sorted(places & set(range(len(good)))):
        bad = bytearray(good)
        bad[place] ^= 1 << chance.randrange(8)
        file.write_bytes(bad)
        with pytest.raises(FileError):
            snapshot.verify(path)
    zeroed = bytearray(good)
    zeroed[len(good) // 2 :] = bytes(len(good) - len(good) // 2)
    file.write_bytes(zeroed)
    with pytest.raises(FileError):
        snapshot.verify(path)
    file.write_bytes(good)
    snapshot.verify(path)


@FORMATS
def test_weights_of_one_run_and_the_state_of_another(text: str, suffix: str, caplog: pytest.LogCaptureFixture) -> None:
    """As a kill between the two files once left them."""
    path = Small.make(text).snap(3, "one")
    shutil.copy(path, "kept")
    Small.make(text, seed=2).snap(3, "two")
    shutil.move("kept", path)
    with caplog.at_level(logging.WARNING, "bpt"):
        assert snapshot.find_newest("snap") is None
    [message] = caplog.messages
    assert message == (
        f"Skipping snapshot {path}: snap_iter_3.caffemodel{suffix}: is damaged, or of another run: these are not the "
        f"weights that {path} belongs to"
    )


@FORMATS
def test_a_kill_while_files_are_put_in_place(text: str, suffix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The old state is gone before its weights are: at no moment does one stand beside those of another run."""
    first, second = Small.make(text), Small.make(text, seed=2)
    first.snap(2, "one")
    path = first.snap(3, "one")
    real, seen = os.replace, []

    def replace(source: str, target: str) -> None:
        seen.append((Path(path).exists(), snapshot.find_newest("snap")))
        real(source, target)

    monkeypatch.setattr(os, "replace", replace)
    second.snap(3, "two")
    assert seen[1:] and not any(there for there, _ in seen[-2:])
    assert {newest for _, newest in seen[-2:]} == {f"snap_iter_2.solverstate{suffix}"}
    assert snapshot.find_newest("snap") == path


@FORMATS
def test_what_is_not_finite_is_skipped(text: str, suffix: str, caplog: pytest.LogCaptureFixture) -> None:
    small = Small.make(text)
    good = small.snap(1, "one")
    small.snap(2, "one", history=float("nan"))
    with torch.no_grad():
        small.net.values_by_name()["ip1", 0].view(-1)[:2] = float("inf")
    small.snap(3, "one")
    with caplog.at_level(logging.WARNING, "bpt"):
        assert snapshot.find_newest("snap") == good
    assert [message.split(":")[0] for message in caplog.messages] == [
        f"Skipping snapshot snap_iter_{iteration}.solverstate{suffix}" for iteration in (3, 2)
    ]
    assert all("values are NaN or infinite; the run had diverged before" in message for message in caplog.messages)


def test_the_run_that_wrote_last_comes_first(caplog: pytest.LogCaptureFixture) -> None:
    """An older run may have come further."""
    small = Small.make()
    for iteration in (10, 20, 30):
        small.snap(iteration, "older")
    small.snap(10, "newer")
    with caplog.at_level(logging.INFO, "bpt"):
        assert snapshot.find_newest("snap") == "snap_iter_10.solverstate"
    assert caplog.messages[-1] == (
        "snap_iter_10.solverstate is of run newer, which wrote last; there are snapshots of 1 other"
    )
    os.truncate("snap_iter_10.caffemodel", 10)
    assert snapshot.find_newest("snap") == "snap_iter_30.solverstate"


def test_weights_beside_the_state_come_first(folder: Path) -> None:
    """Unless those at the recorded path are the right ones."""
    Path("runs").mkdir()
    path = Path(Small.make('snapshot_prefix: "runs/snap"').snap(3, "one"))
    state = snapshot.read_state(str(path))
    Path("copy").mkdir()
    moved = Path(shutil.copy(path, "copy"))
    weights = moved.with_suffix(".caffemodel")
    shutil.copy(path.with_suffix(".caffemodel"), weights)
    assert Path(learned_net(state, str(moved))) == weights
    weights.write_bytes(b"of something else")
    assert Path(learned_net(state, str(moved))) == path.with_suffix(".caffemodel")


@FORMATS
def test_a_link_at_the_final_name_is_replaced(text: str, suffix: str) -> None:
    Path("precious").write_text("text")
    for part in ("caffemodel", "solverstate"):
        Path(f"snap_iter_3.{part}{suffix}").symlink_to("precious")
    snapshot.verify(Small.make(text).snap(3, "one"))
    assert Path("precious").read_text() == "text"
    assert not any(path.is_symlink() for path in Path().iterdir())


def test_what_caffe_wrote_has_no_checksum() -> None:
    """Nor have older snapshots: they are taken as they are."""
    path = Small.make().snap(3)
    assert not pb.SolverState.FromString(Path(path).read_bytes()).HasField("checksum")
    snapshot.verify(path)
