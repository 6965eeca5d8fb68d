"""The networks of ``prototxt/`` for benches: those layers that train, behind images that are made here."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bpt.config.proto import bpt_pb2 as pb
from bpt.config.proto.sources import read_net
from bpt.data.datum import encode_datum
from bpt.data.lmdb_file import LmdbWriter
from scripts.benches.harness.launch import PROTOTXT
from scripts.make_synthetic import images


@dataclass(frozen=True)
class Images:
    """What a rank, or all, train on.

    Attributes:
        size: pixels of an edge of the square images.
        batch: images of an iteration.
    """

    size: int
    batch: int


@dataclass(frozen=True)
class Kind:
    """The images that a network is made for, ``size`` pixels an edge, and the number of their classes."""

    channels: int
    size: int
    classes: int


CASES = tuple(f"bpt_cnn/case{case}" for case in range(1, 8))
KINDS = {
    "lenet": Kind(1, 28, 10),
    "cifar10_quick": Kind(3, 32, 10),
    "resnet20": Kind(3, 32, 10),
    "staticlb_mnist": Kind(1, 28, 10),
    **dict.fromkeys(("cifar10_full", "resnet32", "resnet44", "staticlb_cifar10"), Kind(3, 32, 10)),
    "caffenet": Kind(3, 227, 1000),
    "alexnet": Kind(3, 227, 1000),
    **dict.fromkeys(("googlenet", "vgg16", "resnet152", *CASES), Kind(3, 224, 1000)),
}


def training_net(name: str) -> pb.NetParameter:
    """The network ``name`` without the layers that only test."""
    net = read_net(PROTOTXT / name / "train_val.prototxt").param
    _keep(net, [layer for layer in net.layer if not any(rule.phase == pb.TEST for rule in layer.include)])
    return net


def fed_net(name: str, type: str, images: Images, *fillers: dict[str, Any]) -> pb.NetParameter:
    """The network ``name`` with a layer in the place of its data layers that makes the blobs "data" and "label".

    Args:
        type: Input, so that the caller feeds them, or DummyData.
        fillers: of DummyData, for images and labels.
    """
    net, kind = training_net(name), KINDS[name]
    source = pb.LayerParameter(name="data", type=type, top=["data", "label"])
    param = source.dummy_data_param if type == "DummyData" else source.input_param
    for shape in ((images.batch, kind.channels, images.size, images.size), (images.batch,)):
        param.shape.add(dim=shape)
    for filler in fillers:
        source.dummy_data_param.data_filler.add(**filler)
    _keep(net, [source, *(layer for layer in net.layer if layer.type not in ("Data", "Accuracy"))])
    return net


def reading_net(name: str, images: Path, batch: int) -> pb.NetParameter:
    """The network ``name`` with other images, from an LMDB."""
    net = training_net(name)
    data = next(layer for layer in net.layer if layer.type == "Data")
    read_from(data, images, batch)
    return net


def read_from(data: pb.LayerParameter, images: Path, batch: int) -> None:
    """Let a Data layer read other images, from an LMDB."""
    data.data_param.source, data.data_param.batch_size = str(images), batch
    if data.transform_param.HasField("mean_file"):  # of its own images
        data.transform_param.ClearField("mean_file")
        data.transform_param.mean_value.append(128)


def write_images(path: Path, name: str, samples: int) -> Path:
    """An LMDB of so many images for the network ``name``."""
    kind = KINDS[name]
    with LmdbWriter(path) as writer:
        for image, label in images(samples, (kind.channels, kind.size, kind.size), kind.classes, seed=1, part=0):
            writer.put(encode_datum(image, label))
    return path


def solver_param(net: pb.NetParameter, rate: float, **fields: Any) -> pb.SolverParameter:
    """A solver that trains ``net`` by SGD without an end, and writes nothing; ``fields`` have the last word."""
    usual: dict[str, Any] = {
        "lr_policy": "fixed", "momentum": 0.9, "weight_decay": 0.0005, "max_iter": 10**6, "random_seed": 1,
        "snapshot_prefix": "bench", "snapshot_after_train": False,
    }  # fmt: skip
    return pb.SolverParameter(net_param=net, base_lr=rate, **usual | fields)


def random_batch(name: str, images: Images, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Random images and labels for the network ``name``."""
    generator, kind = torch.Generator().manual_seed(seed), KINDS[name]
    data = torch.rand(images.batch, kind.channels, images.size, images.size, generator=generator) - 0.5
    return data, torch.randint(0, kind.classes, (images.batch,), generator=generator)


def _keep(net: pb.NetParameter, layers: list[pb.LayerParameter]) -> None:
    del net.layer[:]
    net.layer.extend(layers)
