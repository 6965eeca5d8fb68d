"""The two sides of a comparison: the same net from the same text, trained by bpt and by plain PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

from bpt.allocator import keep_freed_memory
from bpt.comm.base import Communicator
from bpt.plan.resolve import resolve
from bpt.proto import bpt_pb2 as pb
from bpt.proto.sources import SolverSource, read_net
from bpt.solver.solver import Solver
from scripts.benches.plain import PlainNet

PROTOTXT = Path(__file__).resolve().parents[2] / "prototxt"
RATE, MOMENTUM, DECAY = 0.001, 0.9, 0.0005
SHAPES = {"lenet": (1, 28), "cifar10_quick": (3, 32), "alexnet": (3, 227), "googlenet": (3, 224), "resnet20": (3, 32)}
CLASSES = {"alexnet": 1000, "googlenet": 1000}

Step = Callable[[], object]
Side = tuple[Step, Callable[[], str]]  # one iteration; which layout it uses


def batch_of(name: str, batch: int) -> tuple[Tensor, Tensor]:
    """Random images and labels for the network ``name``."""
    channels, size = SHAPES[name]
    generator = torch.Generator().manual_seed(0)
    data = torch.rand(batch, channels, size, size, generator=generator) - 0.5
    return data, torch.randint(0, CLASSES.get(name, 10), (batch,), generator=generator)


def solver_source(name: str, batch: int, engine: str) -> SolverSource:
    """A solver of the network ``name`` with Input layers in the place of its data layers."""
    net = read_net(PROTOTXT / name / "train_val.prototxt").param
    kept = [layer for layer in net.layer if layer.type not in ("Data", "Accuracy")]
    channels, size = SHAPES[name]
    inputs = pb.LayerParameter(name="data", type="Input", top=["data", "label"])
    inputs.input_param.shape.add(dim=[batch, channels, size, size])
    inputs.input_param.shape.add(dim=[batch])
    del net.layer[:]
    net.layer.extend([inputs, *kept])
    param = pb.SolverParameter(
        net_param=net, base_lr=RATE, lr_policy="fixed", momentum=MOMENTUM, weight_decay=DECAY,
        max_iter=10**6, random_seed=1, snapshot_prefix="bench", engine=engine,
    )  # fmt: skip
    return SolverSource(param, name, {})


def bpt_side(source: SolverSource, data: Tensor, label: Tensor, world: Communicator | None = None) -> Side:
    """Training with bpt; ``data`` and ``label`` are this rank's."""
    keep_freed_memory()  # as the command line does
    solver = Solver(source, world=world)
    operator = solver.runtime.train.operator
    first = {edge.blob: edge.index for edge in reversed(solver.net.graph.edges)}
    operator.feed({first["data"]: data, first["label"]: label.float()})
    return lambda: solver.step(1), lambda: pb.SolverParameter.Engine.Name(operator.engine)


def plain_side(
    source: SolverSource, data: Tensor, label: Tensor, wrap: Callable[[nn.Module], nn.Module] = lambda net: net
) -> Side:
    """Training with ``torch.nn`` and ``torch.optim.SGD``; ``wrap`` makes the net a distributed one."""
    net = wrap(PlainNet(resolve(source).train.graph()))
    optimizer = torch.optim.SGD(net.parameters(), lr=RATE, momentum=MOMENTUM, weight_decay=DECAY)

    def step() -> float:
        optimizer.zero_grad()
        loss: Tensor = net(data, label)
        torch.autograd.backward(loss)
        optimizer.step()
        return loss.item()

    return step, lambda: ""
