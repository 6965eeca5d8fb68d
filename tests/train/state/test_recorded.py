"""Snapshots against those of a real Caffe, both ways and in both formats."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch

from bpt.config.proto import bpt_pb2 as pb
from bpt.config.proto.blobs import blob_to_array
from bpt.train import state as snapshot
from tests.support.golden_cases import assert_close
from tests.support.recorded_states import NAMES, bring, built, caffe_class, trainer
from tests.support.training import SNAPSHOTS

FORMATS = ("", ".h5")


@pytest.fixture(params=NAMES)
def name(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A recorded run, and a current folder that holds what it started from."""
    bring(request.param, tmp_path)
    monkeypatch.chdir(tmp_path)
    return str(request.param)


def theirs(name: str, file: str) -> Path:
    return SNAPSHOTS / name / f"snap_iter_10.{file}"


def weights_in(path: Path) -> pb.NetParameter:
    return pb.NetParameter.FromString(path.read_bytes())


def state_in(path: Path) -> pb.SolverState:
    return pb.SolverState.FromString(path.read_bytes())


@pytest.mark.parametrize("suffix", FORMATS)
def test_reads_caffes(name: str, suffix: str) -> None:
    _, net, rule = built(name)
    state = snapshot.restore(str(theirs(name, f"solverstate{suffix}")), net, rule)
    info = json.loads((SNAPSHOTS / name / "info.json").read_text())["solver_state"]
    assert (state.iter, state.current_step) == (info["iter"], info["current_step"])
    assert state.learned_net == info["learned_net"] + suffix
    assert [list(h.shape) for h in rule.history] == info["history_shapes"]
    # Values from the binary files, read by protobuf itself.
    for ours, blob in zip(rule.history, state_in(theirs(name, "solverstate")).history, strict=True):
        assert ours.flatten().tolist() == list(blob.data)
    for layer in weights_in(theirs(name, "caffemodel")).layer:
        for index, blob in enumerate(layer.blobs):
            value = net.values_by_name()[layer.name, index]
            assert list(value.shape) == list(blob.shape.dim)
            assert value.flatten().tolist() == list(blob.data)


@pytest.mark.parametrize("suffix", FORMATS)
def test_resumes_caffes_curve(name: str, suffix: str) -> None:
    run = trainer(name)
    state = snapshot.restore(str(theirs(name, f"solverstate{suffix}")), run.net, run.rule)
    run.iteration = state.iter
    recorded = np.load(SNAPSHOTS / name / "run.npz")
    losses = np.array([run.step()[0] for _ in range(15)], np.float32)
    assert_close(losses, recorded["resumed_loss"], "resumed loss", 1e-5)
    for blob, values in run.weights.items():
        assert_close(values, recorded[f"final/{blob}"], f"final {blob}", 1e-5)


@pytest.mark.parametrize("name", ["SGD_multistep", "Adam"], indirect=True)
def test_writes_back_what_caffe_wrote(name: str) -> None:
    param, net, rule = built(name)
    state = snapshot.restore(str(theirs(name, "solverstate")), net, rule)
    path = snapshot.write(param, net, rule, pb.SolverState(iter=state.iter))
    assert path == "snap_iter_10.solverstate"
    assert state_in(Path(path)) == state_in(theirs(name, "solverstate"))
    assert weights_in(Path("snap_iter_10.caffemodel")) == weights_in(theirs(name, "caffemodel"))


def test_writes_like_caffe(name: str) -> None:
    """The same ten iterations trained here: the files differ from Caffe's by the rounding of values alone."""
    run = trainer(name)
    for _ in range(10):
        run.step()
    param, net, rule = built(name)
    for value, trained in zip(net.values_by_name().values(), run.net.values_by_name().values(), strict=True):
        value.data = trained.data
    rule.history, rule.updates = run.rule.history, run.rule.updates
    path = snapshot.write(param, net, rule, pb.SolverState(iter=run.iteration))

    ours, caffes = weights_in(Path("snap_iter_10.caffemodel")), weights_in(theirs(name, "caffemodel"))
    for layer, recorded in zip(ours.layer, caffes.layer, strict=True):
        same_blobs(layer.blobs, recorded.blobs, layer.name)
        del layer.blobs[:], recorded.blobs[:]
    assert ours == caffes
    ours_state, caffes_state = state_in(Path(path)), state_in(theirs(name, "solverstate"))
    same_blobs(ours_state.history, caffes_state.history, "history")
    del ours_state.history[:], caffes_state.history[:]
    assert ours_state == caffes_state


def same_blobs(ours: Sequence[pb.BlobProto], recorded: Sequence[pb.BlobProto], what: str) -> None:
    for index, (mine, blob) in enumerate(zip(ours, recorded, strict=True)):
        assert [f.name for f, _ in mine.ListFields()] == [f.name for f, _ in blob.ListFields()]
        same_values(blob_to_array(mine), blob_to_array(blob), f"{what}/{index}")
        if blob.diff:
            same_values(np.array(mine.diff), np.array(blob.diff), f"{what}/{index} diff")


def same_values(ours: np.ndarray, recorded: np.ndarray, what: str) -> None:
    if np.abs(recorded).max() < 1e-8:  # the update of a bias before BatchNorm: rounding alone
        assert np.abs(ours).max() < 1e-8, what
    else:
        assert_close(ours, recorded, what, 2e-5)


def test_writes_hdf5_like_caffe(name: str) -> None:
    param, net, rule = built(name, "_h5")
    state = snapshot.restore(str(theirs(name, "solverstate.h5")), net, rule)
    if rule.updates is not None:  # what Caffe's diffs hold after an update of SGD
        rule.updates = list(rule.history)
    path = snapshot.write(param, net, rule, pb.SolverState(iter=state.iter))
    assert path == "snap_iter_10.solverstate.h5"
    same_hdf5(Path(path), theirs(name, "solverstate.h5"))
    same_hdf5(Path("snap_iter_10.caffemodel.h5"), theirs(name, "caffemodel.h5"))


def same_hdf5(ours: Path, recorded: Path) -> None:
    """The same groups and data sets, down to how they are stored; but for ours, at which Caffe does not look."""
    with h5py.File(ours) as mine, h5py.File(recorded) as caffes:
        names: list[list[str]] = [[], []]
        mine.visit(names[0].append)
        caffes.visit(names[1].append)
        assert [name for name in names[0] if name != "bpt"] == names[1]
        for key in names[1]:
            if isinstance(caffes[key], h5py.Dataset):
                assert mine[key].id.get_type().equal(caffes[key].id.get_type()), key
                assert mine[key].shape == caffes[key].shape, key
                assert np.array_equal(mine[key][()], caffes[key][()]), key
    # The oldest superblock, which every HDF5 library reads; Caffe's is the same.
    assert ours.read_bytes()[:9] == recorded.read_bytes()[:9]


@pytest.mark.parametrize("suffix", ["", "_h5"])
def test_own_fields_come_back_and_caffe_skips_them(name: str, suffix: str) -> None:
    param, net, rule = built(name, suffix)
    for index, moment in enumerate(rule.history):
        moment.fill_(index + 0.5)
    written = pb.SolverState(
        iter=7, engine=pb.SolverParameter.CHANNELS_LAST, loss_history=[0.5, 0.25], random_seed=2**40
    )
    written.data_position.add(net="train", layer="d", samples=56)
    path = snapshot.write(param, net, rule, written)

    expected = pb.SolverState()
    expected.CopyFrom(written)
    expected.learned_net = "snap_iter_7.caffemodel" + suffix.replace("_", ".")
    # After 7 iterations: stepvalue 4 is passed; floor(6 / stepsize 6); Adam's policy has no steps.
    expected.current_step = {"SGD_multistep": 1, "SGD_bn_diff": 1, "Adam": 0}[name]
    assert snapshot.read_state(path) == expected
    for moment in rule.history:
        moment.zero_()
    assert snapshot.restore(path, net, rule) == expected
    assert [moment.unique().tolist() for moment in rule.history] == [[i + 0.5] for i in range(len(rule.history))]

    if not suffix:
        state: Any = caffe_class("SolverState").FromString(Path(path).read_bytes())
        assert (state.iter, state.learned_net, state.current_step) == (7, expected.learned_net, expected.current_step)
        assert [list(blob.data) for blob in state.history] == [h.flatten().tolist() for h in rule.history]
        assert [field.name for field, _ in state.ListFields()] == ["iter", "learned_net", "history", "current_step"]


def test_log_is_caffes(name: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "bpt"):
        for suffix in ("", "_h5"):
            param, net, rule = built(name, suffix)
            path = snapshot.write(param, net, rule, pb.SolverState(iter=3))
            snapshot.restore(path, net, rule)
    assert caplog.messages == [
        "Snapshotting to binary proto file snap_iter_3.caffemodel",
        "Snapshotting solver state to binary proto file snap_iter_3.solverstate",
        "SGDSolver: restoring history",
        "Snapshotting to HDF5 file snap_iter_3.caffemodel.h5",
        "Snapshotting solver state to HDF5 file snap_iter_3.solverstate.h5",
        "SGDSolver: restoring history",
    ]


def test_channels_last_is_written_in_caffes_order(name: str) -> None:
    param, net, rule = built(name)
    plain = net.values_by_name()["conv1", 0].detach().clone()
    rule.history[0].copy_(torch.arange(72.0).view(4, 2, 3, 3))
    value = net.values_by_name()["conv1", 0]
    value.data = value.data.contiguous(memory_format=torch.channels_last)
    rule.history[0] = rule.history[0].contiguous(memory_format=torch.channels_last)
    path = Path(snapshot.write(param, net, rule, pb.SolverState(iter=1)))
    (conv,) = [layer for layer in weights_in(path.with_suffix(".caffemodel")).layer if layer.name == "conv1"]
    assert list(conv.blobs[0].data) == plain.flatten().tolist()
    assert list(state_in(path).history[0].data) == list(range(72))
    snapshot.restore(str(path), net, rule)
    assert torch.equal(value, plain)
    assert value.is_contiguous(memory_format=torch.channels_last)
