"""Binary files: weights, also old ones, solver states, mean images, HDF5 snapshots, and the data sets of tools."""

from __future__ import annotations

import random
from pathlib import Path
from typing import ClassVar

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from bpt.base.errors import FileError
from bpt.config.proto import bpt_pb2 as pb
from bpt.config.proto.rewrite import rewrite_net_binary
from bpt.data.mnist_cifar10 import RECORD, read_batch, read_idx
from bpt.data.transform import read_mean
from bpt.train import state as snapshot
from tests.fuzz import seeds
from tests.fuzz.engine import Target
from tests.fuzz.messages import Changer
from tests.fuzz.mutations import ODD_TEXTS, mutate_bytes
from tests.support.small_states import Small

_NET = """
layer { name: "in" type: "Input" top: "x" input_param { shape { dim: 2 dim: 2 dim: 6 dim: 6 } } }
layer { name: "conv1" type: "Convolution" bottom: "x" top: "y" convolution_param { num_output: 4 kernel_size: 3 } }
layer { name: "ip1" type: "InnerProduct" bottom: "y" top: "z" inner_product_param { num_output: 5 } }
layer { name: "prelu" type: "PReLU" bottom: "z" top: "z" }
layer { name: "ip2" type: "InnerProduct" bottom: "z" top: "w" inner_product_param { num_output: 3 } }
"""


def _text(rng: random.Random, field: FieldDescriptor) -> str:
    return rng.choice(("conv1", "ip1", "ip2", "case.caffemodel", *ODD_TEXTS))


_OLD_NET = _NET.replace("PReLU", "ReLU").replace("ip2", "ip3")


class _Binary(Target):
    """A file of one message: changed as bytes, or field by field."""

    message: ClassVar[type[Message]]
    patterns: ClassVar[tuple[str, ...]]

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._seeds = [content for pattern in self.patterns for content in seeds.files(pattern)]
        self._changer = Changer(_text, forbidden=("python_param",))

    def case(self, rng: random.Random) -> bytes:
        if rng.random() < 0.6:
            return mutate_bytes(rng, self._seeds)
        message = self.message.FromString(rng.choice(self._seeds))
        self._changer.change(rng, message, rng.choice((1, 2, 4)))
        return message.SerializePartialToString()


class Weights(_Binary):
    """Weights loaded into a net, today's and V1's, and written in today's format."""

    name = "caffemodel"
    suffix = ".caffemodel"
    message = pb.NetParameter
    patterns = ("snapshots/Adam/*.caffemodel", "snapshots/*/v1_weights*.caffemodel")

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._small = Small.make(net=_NET)
        self._old = Small.make(net=_OLD_NET)

    def run(self, case: bytes) -> None:
        path = self.file(case)
        is_old = len(case) % 2 or b"prelu" not in case
        snapshot.load_weights((self._old if is_old else self._small).net, path)
        rewrite_net_binary(path, self.folder / "new.caffemodel")


class States(_Binary):
    """Solver states, and the search for the newest good one."""

    name = "solverstate"
    short = 60
    suffix = ".solverstate"
    message = pb.SolverState
    patterns = ("snapshots/Adam/*.solverstate",)

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._small = Small.make('type: "Adam" momentum2: 0.999', net=_NET)
        for file in ("case.caffemodel", "snap_iter_10.caffemodel"):
            folder.joinpath(file).write_bytes(seeds.files("snapshots/Adam/snap_iter_10.caffemodel")[0])

    def run(self, case: bytes) -> None:
        path = self.file(case, "snap_iter_10")
        snapshot.find_newest(str(self.folder / "snap"))
        self._small.restore(path)


class Hdf5Weights(Target):
    """Weights in HDF5."""

    name = "caffemodel-h5"
    short = 60
    suffix = ".caffemodel.h5"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._small = Small.make(net=_NET)

    def case(self, rng: random.Random) -> bytes:
        return mutate_bytes(rng, seeds.files("snapshots/*/*.caffemodel.h5"))

    def run(self, case: bytes) -> None:
        snapshot.load_weights(self._small.net, self.file(case))


class Hdf5States(Target):
    """Solver states in HDF5."""

    name = "solverstate-h5"
    short = 60
    suffix = ".solverstate.h5"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._small = Small.make('type: "Adam" momentum2: 0.999', net=_NET)
        content = seeds.files("snapshots/Adam/snap_iter_10.caffemodel.h5")[0]
        folder.joinpath("snap_iter_10.caffemodel.h5").write_bytes(content)

    def case(self, rng: random.Random) -> bytes:
        return mutate_bytes(rng, seeds.files("snapshots/Adam/*.solverstate.h5"))

    def run(self, case: bytes) -> None:
        path = self.file(case, "snap_iter_10")
        snapshot.find_newest(str(self.folder / "snap"))
        self._small.restore(path)


class Means(_Binary):
    """Mean images."""

    name = "mean"
    suffix = ".binaryproto"
    message = pb.BlobProto
    patterns = ("data/*.binaryproto",)

    def run(self, case: bytes) -> None:
        read_mean(self.file(case))


class DataSets(Target):
    """The files of MNIST and CIFAR-10."""

    name = "idx"
    suffix = ".idx"

    def case(self, rng: random.Random) -> bytes:
        images = b"\0\0\x08\x03\0\0\0\x02\0\0\0\x03\0\0\0\x02" + bytes(range(12))
        return mutate_bytes(rng, (images, b"\0\0\x08\x01\0\0\0\x02\x01\x02", bytes(RECORD), bytes(2 * RECORD)))

    def run(self, case: bytes) -> None:
        path = self.file(case)
        refused: FileError | None = None
        for read in (read_idx, read_batch):
            try:
                read(Path(path))
                return
            except FileError as error:
                refused = error
        assert refused
        raise refused


TARGETS = (Weights, States, Hdf5Weights, Hdf5States, Means, DataSets)
