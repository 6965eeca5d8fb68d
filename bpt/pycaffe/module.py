"""load_module: a network text as a module for anything else in the PyTorch world."""

from __future__ import annotations

import os

import torch
from torch import Tensor, nn

from bpt import net as core
from bpt.context import RunContext
from bpt.device import CPU
from bpt.errors import RunError
from bpt.failures import is_out_of_memory
from bpt.layers.indices import is_traced
from bpt.proto import bpt_pb2 as pb
from bpt.pycaffe.arguments import Path, checked_phase
from bpt.pycaffe.fitting import Fitting
from bpt.solvers import snapshot
from bpt.solvers.making import make_net
from bpt.solvers.nets import file_plan


class Module(nn.Module):
    """A net that is called with a tensor for each of ``inputs`` and returns ``outputs``: a tensor, or a tuple of them.

    ``inputs`` and ``outputs`` are lists of names, the latter sorted. The children are the layers under their names, so
    parameters are called ``conv1.blobs.0`` (weights) and ``conv1.blobs.1`` (bias). Dots in a layer's name, which
    torch forbids, become ``_``; a name that is taken, by torch or by another layer, gets a ``_`` at its end.
    """

    def __init__(self, net: core.Net) -> None:
        super().__init__()
        self.inputs = list(net.graph.inputs)
        self.outputs = [edge.blob for edge in net.graph.outputs]
        self._net = (net,)  # in a tuple, so that the layers are not registered twice
        self._fitting = Fitting(net.graph)
        for node in net.graph.nodes:
            name = node.name.replace(".", "_") or f"layer{node.index}"
            while hasattr(self, name):
                name += "_"
            self.add_module(name, net.layer(node))
        self.training = net.training

    def forward(self, *inputs: Tensor) -> Tensor | tuple[Tensor, ...]:
        is_written_down = torch.compiler.is_compiling() or torch.compiler.is_exporting() or is_traced()
        if is_written_down:  # tracers make other things of shapes, and stumble over what catches errors
            return self._run(*inputs)
        self._fitting.check(inputs)
        try:
            return self._run(*inputs)
        except RunError as error:
            if not is_out_of_memory(error.__cause__ or error):
                self._fitting.explain_dtype(inputs, self.parameters(), error)
            raise

    def _run(self, *inputs: Tensor) -> Tensor | tuple[Tensor, ...]:
        (net,) = self._net
        if self.training:
            _count_pass(net.context)
        outputs: Tensor | tuple[Tensor, ...] = net(*inputs)
        return outputs


@torch.compiler.disable  # type: ignore[untyped-decorator]  # it would compile anew for each count
def _count_pass(context: RunContext) -> None:
    """Every pass in training has random numbers of its own."""
    context.micro += 1


def load_module(path: Path, weights: Path | None = None, phase: int = pb.TEST) -> nn.Module:
    """The network text at ``path`` as a plain ``torch.nn.Module``.

    Args:
        path: the network's text file.
        weights: a file of weights to start from; else the text's fillers draw them.
        phase: ``bpt.TRAIN`` or ``bpt.TEST``.

    Returns:
        A module that takes tensors and returns tensors (see Module). It refuses inputs that its layers cannot work on
        by a UserError, which names an input and its shape. Gradients reach all layers, whether there is a
        loss in the text or not. Parameters with ``lr_mult: 0`` have ``requires_grad`` off.

    Raises:
        UserError: ``phase`` is none.
        PrototxtError: the text is wrong; says where.
        FileError: the weights cannot be read, or do not fit the net.
        RunError: there is not enough memory.
    """
    plan = file_plan(os.fspath(path), checked_phase(phase))
    plan.source.param.force_backward = True  # what the gradients are wanted for is not in the text
    net = make_net(plan.graph(), CPU)
    for param in net.graph.params:
        if not param.lr_mult:
            net.value(param).requires_grad_(False)
    if weights is not None:
        snapshot.load_weights(net, os.fspath(weights))
    return Module(net)
