"""Going on from snapshots: the newest good one, and what is said of those that do not fit."""

from __future__ import annotations

import logging
import os
import shutil
from pathlib import Path

import h5py
import pytest

from bpt.base.errors import FileError
from bpt.engine.optim.rules import make_rule
from bpt.graph.part import Part
from bpt.nn.net import Net
from bpt.nn.pass_context import PassContext
from bpt.train import state as snapshot
from tests.support.golden_cases import graph_of
from tests.support.small_states import NET, Small, values, write_other_files

pytestmark = pytest.mark.usefixtures("command_line")

HDF5 = "snapshot_format: HDF5"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder as the current one."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def refusal(small: Small, path: str) -> str:
    """What ``restore`` says of ``path``; the weights and the history have not changed."""
    before = values(small.net), [moment.tolist() for moment in small.rule.history]
    with pytest.raises(FileError) as caught:
        small.restore(path)
    assert before == (values(small.net), [moment.tolist() for moment in small.rule.history])
    return str(caught.value)


def truncate(path: str) -> None:
    os.truncate(path, Path(path).stat().st_size * 2 // 3)


@pytest.mark.parametrize("text", ["", HDF5])
def test_weights_are_found_beside_the_state(folder: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    small = Small.make(text + ' snapshot_prefix: "runs/snap"')
    Path("runs").mkdir()
    path = small.snap(2)
    shutil.move("runs", "moved")
    other = Small.make(seed=1)
    assert other.restore(path.replace("runs", "moved")).learned_net.startswith("runs/snap_iter_2.caffemodel")
    assert values(other.net) == values(small.net)


def test_state_without_weights() -> None:
    small = Small.make()
    path = small.snap(2)
    Path("snap_iter_2.caffemodel").unlink()
    assert refusal(small, path) == ('snap_iter_2.caffemodel: no such file; did you mean "snap_iter_2.solverstate"?')


@pytest.mark.parametrize(("text", "suffix"), [("", ""), (HDF5, ".h5")])
def test_snapshot_of_another_net(text: str, suffix: str) -> None:
    path = Small.make(text).snap(3)
    wider = Small.make(net=NET.replace("num_output: 4", "num_output: 5"))
    assert refusal(wider, path) == (
        f"snap_iter_3.caffemodel{suffix}: Cannot copy param 0 weights from layer 'ip1'; shape mismatch.  Source "
        "param shape is 4 3 (12); target param shape is 5 3 (15). To learn this layer's parameters from scratch "
        "rather than copying from a saved net, rename the layer."
    )
    renamed = Small.make(net=NET.replace("ip1", "first").replace("num_output: 4", "num_output: 5"))
    assert refusal(renamed, path).startswith(
        f"snap_iter_3.caffemodel{suffix}: Cannot copy param 0 weights from layer 'b/ip2'"
    )


@pytest.mark.parametrize(("text", "suffix"), [("", ""), (HDF5, ".h5")])
def test_history_of_another_net_or_rule(text: str, suffix: str) -> None:
    path = Small.make(text).snap(3)
    assert refusal(Small.make('type: "Adam"'), path) == (
        f"snap_iter_3.solverstate{suffix}: Incorrect length of history blobs: 4 in the file, but Adam on this net "
        "has 8; it was written with another solver type or for another net"
    )
    other = NET.replace('"ip1"', '"i"').replace('"b/ip2"', '"j"').replace("num_output: 2", "num_output: 6")
    assert refusal(Small.make(net=other), path) == (
        f"snap_iter_3.solverstate{suffix}: history blob 2, of parameter j/0, has shape 2 4 (8), but the parameter's "
        "is 6 4 (24); it was written for another net"
    )


def test_other_kinds_of_files() -> None:
    small = write_other_files()
    for name, words in {
        "snap_iter_3.caffemodel": "is a file of weights, not a solver state; give the .solverstate file, or use",
        "snap_iter_3.caffemodel.h5": "is a file of weights, not a solver state; give the .solverstate.h5 file, or use",
        "net.prototxt": "is a text file (prototxt), not a binary solver state",
        "mean.binaryproto": "is a binary blob, such as a mean image (binaryproto), not a binary solver state",
        "data.h5": "is an HDF5 file, but no solver state: it has no /iter and /history",
        "snap_iter_4.solverstate": 'no such file; did you mean "snap_iter_3.solverstate"?',
    }.items():
        assert refusal(small, name).startswith(f"{name}: {words}")


@pytest.mark.parametrize(("text", "suffix"), [("", ""), (HDF5, ".h5")])
@pytest.mark.parametrize("part", ["caffemodel", "solverstate"])
def test_truncated(text: str, suffix: str, part: str) -> None:
    small = Small.make(text)
    path = small.snap(3)
    truncate(f"snap_iter_3.{part}{suffix}")
    message = refusal(small, path)
    assert message.startswith(f"snap_iter_3.{part}{suffix}: is a")
    assert "damaged or " in message


def test_hdf5_states_that_lack_something() -> None:
    path = Small.make(HDF5).snap(3)
    with h5py.File(path, "a") as file:
        file.move("history/1", "history/7")
    assert refusal(Small.make(), path).startswith(
        f"{path}: is an HDF5 file, but damaged or not written by Caffe or bpt: "
    )


def test_newest() -> None:
    assert snapshot.find_newest("snap") is None
    assert snapshot.find_newest("no/such/snap") is None
    small = Small.make()
    for iteration in (9, 10, 2):
        small.snap(iteration)
    Small.make('snapshot_prefix: "snapper"').snap(77)
    Path("snap_iter_99.solverstate.tmp").touch()
    assert snapshot.find_newest("snap") == "snap_iter_10.solverstate"
    Small.make(HDF5).snap(11)
    assert snapshot.find_newest("snap") == "snap_iter_11.solverstate.h5"
    assert snapshot.find_newest("./snap") == "./snap_iter_11.solverstate.h5"


@pytest.mark.parametrize(("text", "suffix"), [("", ""), (HDF5, ".h5")])
def test_newest_skips_what_is_damaged(text: str, suffix: str, caplog: pytest.LogCaptureFixture) -> None:
    small = Small.make(text)
    for iteration in (1, 2, 3, 4):
        small.snap(iteration)
    truncate(f"snap_iter_4.solverstate{suffix}")
    truncate(f"snap_iter_3.caffemodel{suffix}")
    Path(f"snap_iter_2.caffemodel{suffix}").unlink()
    with caplog.at_level(logging.WARNING, "bpt"):
        assert snapshot.find_newest("snap") == f"snap_iter_1.solverstate{suffix}"
    assert [record.levelname for record in caplog.records] == ["WARNING"] * 3
    starts = [
        f"Skipping snapshot snap_iter_{n}.solverstate{suffix}: {why}"
        for n, why in (
            (4, "is a"),  # its path is told once
            (3, f"snap_iter_3.caffemodel{suffix}: is a"),
            (2, f"snap_iter_2.caffemodel{suffix}: no such file"),
        )
    ]
    assert all(message.startswith(start) for message, start in zip(caplog.messages, starts, strict=True))
    os.truncate(f"snap_iter_1.caffemodel{suffix}", 0)
    assert snapshot.find_newest("snap") is None


@pytest.mark.parametrize(("text", "suffix"), [("", ""), (HDF5, ".h5")])
def test_weights_of_all_layers_are_wanted(text: str, suffix: str) -> None:
    """A run went on from fillers where the file had no layer of the name."""
    path = Small.make(text).snap(3)
    reason = "so the run cannot continue from it; it was written for another net: start from its weights with --weights"
    other = Small.make(net=NET.replace("ip1", "first"), seed=1)
    assert refusal(other, path) == f'snap_iter_3.caffemodel{suffix}: has no parameters of layer "first", {reason}'
    others = Small.make(net=NET.replace("ip1", "first").replace("b/ip2", "second"), seed=1)
    assert refusal(others, path) == (
        f'snap_iter_3.caffemodel{suffix}: has no parameters of layers "first", "second", {reason}'
    )


@pytest.mark.parametrize("text", ["", HDF5])
def test_shared_parameters_are_stored_with_their_owner(text: str) -> None:
    names = 'param { name: "w" } param { name: "v" }'
    shared = f"""{NET.replace('top: "a"', f'top: "a" {names}')}
layer {{ name: "again" type: "InnerProduct" bottom: "x" top: "c" {names} inner_product_param {{ num_output: 4 }} }}"""
    first, second = Small.make(text, net=shared), Small.make(text, net=shared, seed=1)
    second.restore(first.snap(3))
    assert values(second.net) == values(first.net)
    assert len(first.net.local_params) == 4


@pytest.mark.parametrize("text", ["", HDF5])
def test_a_rank_that_has_some_layers_wants_them_all_in_the_file(text: str) -> None:
    whole = Small.make(text)
    path = whole.snap(3)
    for layers in ({0, 1}, {2}):
        graph = graph_of(NET)
        net = Net(graph, PassContext(seed=1), part=Part(frozenset(layers)))
        snapshot.restore(path, net, make_rule(whole.plan.optim, net))
        assert values(net) == {name: value for name, value in values(whole.net).items() if name in values(net)}
        assert len(values(net)) == 2
        renamed = Net(graph_of(NET.replace("ip1", "first")), part=Part(frozenset(layers)))
        with pytest.raises(FileError, match='has no parameters of layer "first"'):  # on all ranks alike
            snapshot.restore(path, renamed, make_rule(whole.plan.optim, renamed))
