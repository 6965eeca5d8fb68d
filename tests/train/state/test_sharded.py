"""Snapshots of nets in slices: whole, the same from any number of ranks, and read by any other number."""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import tracemalloc
from pathlib import Path

import pytest

from bpt.base.errors import FileError, WriteError
from bpt.system.comm.base import Communicator
from bpt.system.comm.serial import SerialCommunicator
from bpt.train import state as snapshot
from bpt.train.state import blob_gathering as gathering
from bpt.train.state import hdf5
from tests.support.doubles.thread_ranks import run_ranks
from tests.support.full_disk import contents, full_disk, small_files_only
from tests.train.state.sharded import MASTER_SLAVE, NET, PEER, Rank, equal

FORMATS = {"": "", ".h5": "snapshot_format: HDF5"}
RULES = ["SGD", "Adam"]
MANY = [(PEER, 2), (PEER, 3), (PEER, 4), (MASTER_SLAVE, 2), (MASTER_SLAVE, 3), (MASTER_SLAVE, 4)]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder as the current one, and blobs that come in many pieces."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(gathering, "PIECE", 4)
    monkeypatch.setattr(hdf5, "PIECE", 4)
    return tmp_path


def write(scheme: str, ranks: int, solver: str, seed: int = 1) -> dict[str, bytes]:
    """The files of a snapshot that so many ranks write."""

    def run(comm: Communicator) -> str:
        rank = Rank(comm, scheme, solver)
        rank.fill(seed)
        return rank.snap()

    paths = run_ranks(ranks, run)
    assert set(paths) == {f"snap_iter_4.solverstate{'.h5' * ('HDF5' in solver)}"}
    written = contents()
    for name in written:
        Path(name).unlink()
    return written


@pytest.mark.parametrize("diff", ["", "snapshot_diff: true"])
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("suffix", FORMATS)
def test_files_do_not_tell_how_many_ranks_wrote_them(suffix: str, rule: str, diff: str) -> None:
    solver = f'type: "{rule}" {FORMATS[suffix]} {diff}'
    one = write(PEER, 1, solver)
    assert sorted(one) == [f"snap_iter_4.caffemodel{suffix}", f"snap_iter_4.solverstate{suffix}"]
    for scheme, ranks in MANY:
        assert write(scheme, ranks, solver) == one, (scheme, ranks)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("suffix", FORMATS)
def test_resuming_on_another_number_of_ranks(suffix: str, rule: str) -> None:
    solver = f'type: "{rule}" {FORMATS[suffix]}'
    for number, (scheme, ranks) in enumerate([(PEER, 1), (PEER, 4), (MASTER_SLAVE, 3)]):

        def save(comm: Communicator, scheme: str = scheme, seed: int = number) -> str:
            rank = Rank(comm, scheme, solver)
            rank.fill(seed)
            return rank.snap()

        path = run_ranks(ranks, save)[0]
        for other, count in [(PEER, 1), *MANY]:

            def resume(comm: Communicator, other: str = other, path: str = path, seed: int = number) -> bool:
                rank = Rank(comm, other, solver, seed=9)
                assert snapshot.restore(path, rank.net, rank.rule).iter == 4
                return equal(rank.values, rank.expected(seed))

            assert all(run_ranks(count, resume)), (scheme, ranks, other, count)


@pytest.mark.parametrize("suffix", FORMATS)
def test_fine_tuning_takes_slices(suffix: str) -> None:
    source = Rank(SerialCommunicator(), PEER)
    source.fill(3)
    path = f"w.caffemodel{suffix}"
    snapshot.save_weights(source.net, path)

    def load(comm: Communicator) -> bool:
        rank = Rank(comm, MASTER_SLAVE, seed=9)
        assert snapshot.load_weights(rank.net, path) >= {"fc1", "fc2", "last"}
        held = len(rank.net.local_params)
        return equal(rank.values[:held], rank.expected(3)[:held])

    assert run_ranks(3, load) == [True] * 3


def test_a_rank_whose_layers_all_came_is_not_told_that_nothing_was_loaded(caplog: pytest.LogCaptureFixture) -> None:
    snapshot.save_weights(Rank(SerialCommunicator(), PEER).net, "w.caffemodel")

    def load(comm: Communicator) -> None:
        snapshot.load_weights(Rank(comm, MASTER_SLAVE, text=NET.replace("fc", "other")).net, "w.caffemodel")

    with caplog.at_level(logging.WARNING, "bpt"), pytest.MonkeyPatch.context() as patch:
        patch.setattr("tests.train.state.sharded.SPLIT", ("other1", "other2"))
        run_ranks(2, load)
    assert caplog.messages == []


@pytest.mark.parametrize("suffix", FORMATS)
def test_all_ranks_find_the_same_when_a_file_does_not_fit(suffix: str) -> None:
    """Also those that hold nothing of the blob that differs."""
    source = Rank(SerialCommunicator(), PEER, FORMATS[suffix])
    path = source.snap()

    def message(comm: Communicator, text: str, solver: str = "") -> str:
        rank = Rank(comm, MASTER_SLAVE, solver, text=text)
        before = [value.clone() for value in rank.values]
        with pytest.raises(FileError) as caught:
            snapshot.restore(path, rank.net, rank.rule)
        assert equal(rank.values, before)
        return str(caught.value)

    wider = NET.replace("num_output: 7", "num_output: 8")
    (said,) = set(run_ranks(3, lambda comm: message(comm, wider)))
    assert "from layer 'fc1'" in said
    assert "Source param shape is 7 4 (28); target param shape is 8 4 (32)." in said
    (said,) = set(run_ranks(3, lambda comm: message(comm, NET, 'type: "Adam"')))
    assert "Incorrect length of history blobs: 12 in the file, but Adam on this net has 24;" in said


FAILURES = [
    ("caffemodel", "No space left on device"),
    ("solverstate", "No space left on device"),
    ("", "File too large"),
    ("folder", "File exists"),
]


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="finds out a file's name by /proc")
@pytest.mark.parametrize(("failing", "reason"), FAILURES, ids=[reason for _, reason in FAILURES])
@pytest.mark.parametrize("suffix", FORMATS)
@pytest.mark.parametrize("scheme", [PEER, MASTER_SLAVE])
def test_a_failure_to_write_is_raised_by_all_ranks(
    scheme: str, suffix: str, failing: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("file").touch()
    path = ("file/" if failing == "folder" else "") + "snap"
    solver = f'{FORMATS[suffix]} snapshot_prefix: "{path}"'

    if failing != "folder":
        run_ranks(3, lambda comm: Rank(comm, scheme, solver).snap(5))
    before = contents()

    def run(comm: Communicator) -> str:
        rank = Rank(comm, scheme, solver, seed=1)
        with pytest.raises(WriteError) as caught:
            rank.snap(5)
        return str(caught.value)

    if failing:
        full_disk(monkeypatch, failing)
    with contextlib.nullcontext() if failing else small_files_only():
        said = run_ranks(3, run)
    if failing == "solverstate":  # the weights are newer, and whole
        before |= {name: data for name, data in contents().items() if "caffemodel" in name}
    assert contents() == before
    what = "solverstate" if failing == "solverstate" else "caffemodel"
    assert said == [f"{path}_iter_5.{what}{suffix}: could not be written: {reason}"] * 3


def test_a_net_that_the_format_cannot_hold_fails_on_all_ranks() -> None:
    text = NET.replace('"narrow"', '"fc1/0"')  # in HDF5 the name of a blob of "fc1"

    def run(comm: Communicator) -> str:
        rank = Rank(comm, PEER, FORMATS[".h5"], text=text)
        with pytest.raises(WriteError) as caught:
            rank.snap()
        return str(caught.value)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tests.train.state.sharded.SPLIT", ("fc1", "fc2", "fc1/0"))
        (said,) = set(run_ranks(3, run))
    assert said.startswith("snap_iter_4.caffemodel.h5: could not be written: not possible in HDF5: ")
    assert os.listdir() == []


BIG = """
layer { name: "in" type: "Input" top: "x" input_param { shape { dim: 1 dim: 1024 } } }
layer { name: "fc1" type: "InnerProduct" bottom: "x" top: "y" inner_product_param { num_output: 2048 } }
layer { name: "fc2" type: "InnerProduct" bottom: "y" top: "z" inner_product_param { num_output: 1024 transpose: true } }
"""


def test_in_hdf5_no_rank_holds_more_than_a_piece_of_the_others_blobs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blobs of 8 MiB, of which the writing rank holds none, come in pieces of 256 KiB. numpy tells tracemalloc."""
    monkeypatch.setattr(gathering, "PIECE", 2**16)
    monkeypatch.setattr(hdf5, "PIECE", 2**16)
    monkeypatch.setattr("tests.train.state.sharded.SPLIT", ("fc1", "fc2"))
    solver = FORMATS[".h5"]
    peaks = {}

    def run(comm: Communicator) -> str:
        rank = Rank(comm, MASTER_SLAVE, solver, text=BIG)
        for what, work in {
            "write": rank.snap,
            "check": lambda: snapshot.find_newest("snap"),
            "read": lambda: snapshot.restore("snap_iter_4.solverstate.h5", rank.net, rank.rule),
        }.items():
            comm.Barrier()
            if comm.rank == 0:
                tracemalloc.reset_peak()
            comm.Barrier()
            work()
            comm.Barrier()
            peaks[what] = tracemalloc.get_traced_memory()[1] / 2**20
        return "done"

    tracemalloc.start()
    try:
        run_ranks(3, run)
    finally:
        tracemalloc.stop()
    assert max(peaks["write"], peaks["check"]) < 4, peaks  # for all ranks together
    assert peaks["read"] < 12, peaks  # two slaves read halves at once
    size = Path("snap_iter_4.caffemodel.h5").stat().st_size
    assert size > 2 * 2**23


def test_by_default_a_net_in_slices_is_not_taken_for_whole() -> None:
    for scheme, number in itertools.product((PEER, MASTER_SLAVE), (0, 1)):

        def run(comm: Communicator, scheme: str = scheme, number: int = number) -> None:
            if comm.rank == number:
                with pytest.raises(AssertionError):
                    snapshot.save_weights(Rank(comm, scheme).net, "w.caffemodel")

        run_ranks(2, run)
