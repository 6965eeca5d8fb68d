"""The two sides of a comparison: the same net from the same text, trained by bpt and by plain PyTorch."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from bpt.base.malloc_settings import keep_freed_memory
from bpt.config.plan.resolve import resolve
from bpt.config.proto import bpt_pb2 as pb
from bpt.config.proto.sources import SolverSource
from bpt.graph.layer_graph import LayerGraph
from bpt.nn.net_graph import build_graph_of
from bpt.system.comm.base import Communicator
from bpt.system.device import CPU
from bpt.train.solver.solver import Solver
from scripts.benches.harness.nets import KINDS, Images, fed_net, random_batch, solver_param
from scripts.benches.harness.plain_net import PlainNet

RATE, MOMENTUM, DECAY = 0.001, 0.9, 0.0005
PLAIN = ("eager", "fused", "compiled")  # variants of plain PyTorch
HALF = {pb.Precision.BFLOAT16: torch.bfloat16, pb.Precision.FLOAT16: torch.float16}

Step = Callable[[], object]
Side = tuple[Step, Callable[[], str]]  # one iteration; which layout it uses


def batch_of(name: str, batch: int) -> tuple[Tensor, Tensor]:
    """Random images and labels for the network ``name``."""
    return random_batch(name, Images(KINDS[name].size, batch))


def solver_source(name: str, batch: int, engine: str, precision: str = "FLOAT32") -> SolverSource:
    """A solver of the network ``name`` with an Input layer in the place of its data layers."""
    net = fed_net(name, "Input", Images(KINDS[name].size, batch))
    rule = {"momentum": MOMENTUM, "weight_decay": DECAY}
    return SolverSource(solver_param(net, RATE, **rule, engine=engine, precision=precision), name, {})


def fed(graph: LayerGraph, data: Tensor, label: Tensor) -> dict[int, Tensor]:
    """What an operator is fed with: the blobs "data" and "label", by their edges."""
    first = {edge.blob: edge.index for edge in reversed(graph.edges)}
    return {first["data"]: data, first["label"]: label.float()}


def bpt_side(source: SolverSource, data: Tensor, label: Tensor, world: Communicator | None = None) -> Side:
    """Training with bpt; ``data`` and ``label`` are this rank's."""
    keep_freed_memory()  # as the command line does
    solver = Solver(source, world=world)
    operator = solver.runtime.nets.train.operator
    operator.feed(fed(solver.net.graph, data, label))
    return lambda: solver.step(1), lambda: pb.SolverParameter.Engine.Name(operator.engine)


def plain_side(
    source: SolverSource,
    data: Tensor,
    label: Tensor,
    variant: str = "eager",
    wrap: Callable[[nn.Module], nn.Module] = lambda net: net,
    device: torch.device = CPU,
) -> Side:
    """Training with ``torch.nn`` and ``torch.optim.SGD`` on a device.

    Args:
        variant: of PLAIN: as anyone would write it first; channels-last with the fused optimizer; that, compiled.
        wrap: makes the net a distributed one.

    In the precisions BFLOAT16 and FLOAT16 of ``source`` forward runs under autocast, the latter with a GradScaler.
    """
    half = HALF.get(source.param.precision)
    net: nn.Module = PlainNet(build_graph_of(resolve(source).train)).to(device)
    layout, fused = torch.contiguous_format, None
    if variant != "eager":
        layout, fused = torch.channels_last, True
        net = net.to(memory_format=layout)  # type: ignore[call-overload]
    net = wrap(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=RATE, momentum=MOMENTUM, weight_decay=DECAY, fused=fused)
    forward = torch.compile(net) if variant == "compiled" else net
    data, label = data.to(device).contiguous(memory_format=layout), label.to(device)
    scaler = torch.amp.GradScaler(device.type, enabled=half is torch.float16)

    def step() -> Tensor:
        optimizer.zero_grad()
        with torch.autocast(device.type, half, enabled=half is not None):
            loss: Tensor = forward(data, label)
        torch.autograd.backward(scaler.scale(loss))
        scaler.step(optimizer)
        scaler.update()
        return loss.detach()

    return step, lambda: ""
