"""A rank of a rival of ``scripts/bench hybrid --rivals``: 3D-ResAttNet by PyTorch, as a careful user writes it.

``DistributedDataParallel`` over gloo, or one process. A map-style data set in memory with the net's augmentation, a
``DistributedSampler``, ``torch.optim.SGD`` with a group for each ``lr_mult``, ``MultiStepLR``. The net begins with the
weights that bpt's net begins with. Each rank normalises by its own part of the batch, as nn.BatchNorm3d does: torch's
SyncBatchNorm is for GPUs alone.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from statistics import fmean
from typing import Any

import numpy as np
import torch
from torch import Tensor, distributed, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler

from bpt.comm.base import Communicator
from bpt.data.volume_source import VolumeSource
from bpt.graph.layer_graph import LayerGraph
from bpt.net import Net
from bpt.net_graph import build_graph_of
from bpt.plan.resolve import resolve
from bpt.proto import bpt_pb2 as pb
from bpt.proto.sources import SolverSource, read_solver
from scripts.benches.harness.plain_net import PlainNet
from scripts.benches.hybrid.rival_points import RivalPoint, segments

LEFT_OUT = ("VolumeData", "Input", "SoftmaxWithLoss", "Accuracy")


class Volumes(Dataset[tuple[Tensor, int]]):
    """All volumes of a list with their labels, mirrored and moved at random as a VolumeData layer of training does."""

    def __init__(self, layer: pb.LayerParameter) -> None:
        param = layer.volume_data_param
        shape = tuple(param.shape) if len(param.shape) == 3 else (param.shape[0],) * 3
        source = VolumeSource(param.source, param.root_folder, shape, param.intensity)
        self.batch = param.batch_size
        self.mirror, self.shift = param.mirror, param.shift
        self.labels = [entry.label for entry in source.entries]
        self.volumes = torch.from_numpy(np.stack([source.read(index) for index in range(len(source))]))[:, None]

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        volume = self.volumes[index]
        if self.mirror and torch.rand(()) < 0.5:
            volume = volume.flip(1)
        if self.shift:
            padded = nn.functional.pad(volume[None], (self.shift,) * 6, mode="replicate")[0]
            starts = torch.randint(0, 2 * self.shift + 1, (3,)).tolist()
            d, h, w = (slice(start, start + size) for start, size in zip(starts, volume.shape[1:], strict=True))
            volume = padded[:, d, h, w]
        return volume, self.labels[index]


def layer_of(graph: LayerGraph) -> pb.LayerParameter:
    """The layer that reads volumes."""
    found: pb.LayerParameter = next(node for node in graph.nodes if node.type == "VolumeData").spec.param
    return found


def classifier(net: Net, given: pb.NetParameter) -> PlainNet:
    """The net whose text is ``given`` up to the scores of the classes, with the weights of bpt's ``net``."""
    graph, text = net.graph, pb.NetParameter()
    text.CopyFrom(given)
    layers = [layer for layer in text.layer if layer.type not in LEFT_OUT]
    del text.layer[:]
    edge = next(edge for edge in graph.edges if edge.blob == "data")
    data = text.layer.add(name="data", type="Input", top=["data"])
    data.input_param.shape.add(dim=edge.shape)
    text.layer.extend(layers)
    alone = SolverSource(pb.SolverParameter(net_param=text, base_lr=1, lr_policy="fixed"), "classifier", {})
    plain = PlainNet(build_graph_of(resolve(alone).train))
    plain.take_over(net.values_by_name())
    return plain


def groups(net: PlainNet, graph: LayerGraph, rate: float) -> list[dict[str, Any]]:
    """The parameters by the factor ``lr_mult`` of their rates; those of the classifier have one."""
    tenfold = {id(parameter) for parameter in net.steps[-1][0].parameters()}
    factor = next(param.lr_mult for param in reversed(graph.params))
    return [
        {"params": [p for p in net.parameters() if (id(p) in tenfold) == fast], "lr": rate * (factor if fast else 1)}
        for fast in (False, True)
    ]


def work(order: dict[str, Any], world: Communicator) -> list[RivalPoint]:
    """A rank: trains for ``iterations``; the points of its curve. See rival_points.segments for the order."""
    torch.manual_seed(order["seed"])
    plan = resolve(read_solver(order["solver"], order["set"]))
    optim = plan.optim
    _meet(world)
    net = classifier(Net(build_graph_of(plan.train)), plan.train.source.param)
    model: nn.Module = DistributedDataParallel(net) if world.size > 1 else net
    optimizer = torch.optim.SGD(
        groups(net, build_graph_of(plan.train), optim.base_lr), momentum=optim.momentum, weight_decay=optim.weight_decay
    )
    scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, list(optim.stepvalue), optim.gamma)
    training = Volumes(layer_of(build_graph_of(plan.train)))
    tested = Volumes(layer_of(build_graph_of(plan.tests[0])))
    batches = _batches(training, world)
    points: list[RivalPoint] = []
    seconds = 0.0
    for first, last in segments(order["iterations"], order["every"]):
        losses = []
        world.Barrier()
        start = time.perf_counter()
        for _ in range(first, last):
            volumes, labels = next(batches)
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(volumes), labels)
            torch.autograd.backward(loss)
            optimizer.step()
            scheduler.step()
            losses.append(loss.item())
        world.Barrier()
        seconds += time.perf_counter() - start
        points.append((last, seconds, fmean(losses), _accuracy(net, tested)))
    distributed.destroy_process_group()
    return points


def _meet(world: Communicator) -> None:
    """Let torch's processes find each other."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = world.allgather(probe.getsockname()[1])[0]
    distributed.init_process_group(
        "gloo", init_method=f"tcp://127.0.0.1:{port}", rank=world.rank, world_size=world.size
    )


def _batches(training: Volumes, world: Communicator) -> Iterator[tuple[Tensor, Tensor]]:
    """This rank's part of each batch, epoch after epoch; what does not fill a batch is left out."""
    sampler: DistributedSampler[tuple[Tensor, int]] = DistributedSampler(
        training, world.size, world.rank, shuffle=True, drop_last=True
    )
    loader = DataLoader(training, training.batch // world.size, sampler=sampler, drop_last=True)
    epoch = 0
    while True:
        sampler.set_epoch(epoch)
        yield from loader
        epoch += 1


def _accuracy(net: PlainNet, tested: Volumes) -> float:
    net.eval()
    with torch.inference_mode():
        right = [
            int((net(tested.volumes[at : at + 20]).argmax(1) == torch.tensor(tested.labels[at : at + 20])).sum())
            for at in range(0, len(tested), 20)
        ]
    net.train()
    return sum(right) / len(tested)
