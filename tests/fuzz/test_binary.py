"""Binary files: weights, also old ones, solver states, mean images, HDF5 snapshots, and the data sets of tools."""

from __future__ import annotations

import gzip
import io
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest
from google.protobuf.message import Message

from bpt.config.proto import bpt_pb2 as pb
from tests.fuzz.engine import MIB, Target, run_cases, run_one
from tests.fuzz.targets.binary import TARGETS, DataSets, Hdf5States, Hdf5Weights, Means, States, Weights


@pytest.mark.parametrize("kind", TARGETS, ids=lambda kind: kind.name)
def test_binary_files_are_taken_or_refused(kind: type[Target], tmp_path: Path) -> None:
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
    ],
    ids=range(10),
)
def test_files_that_announce_more_than_they_hold(kind: type[Target], case: bytes | Message, tmp_path: Path) -> None:
    content = case if isinstance(case, bytes) else case.SerializeToString()
    assert run_one(kind(tmp_path), content).refused


def test_a_packed_file_that_swells_is_read_no_further_than_it_says(tmp_path: Path) -> None:
    target = DataSets(tmp_path)
    target.suffix = ".gz"
    target.memory = 16 * MIB
    swelling = gzip.compress(b"\0\0\x08\x01\0\0\0\x02" + bytes(2**27), 1)
    assert run_one(target, swelling).refused
