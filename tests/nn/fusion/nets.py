"""Nets whose layers can be run as one, and what a pass over them makes, with fusion and without."""

from __future__ import annotations

from collections.abc import Collection

import torch
from torch import Tensor

from bpt.config.proto import bpt_pb2 as pb
from bpt.graph.layer_graph import LayerGraph
from bpt.nn.fusion.fusion_steps import FusionStep
from bpt.nn.net import Net
from bpt.nn.pass_context import PassContext
from tests.support.golden_cases import graph_of


def net_of(layers: str, *, phase: int = pb.TRAIN, shape: str = "dim: 4 dim: 3 dim: 9 dim: 8", seed: int = 3) -> Net:
    """A net of ``layers`` from images "x", with parameters of which none is 0 or 1."""
    text = f"""force_backward: true
        layer {{ name: "in" type: "Input" top: "x" input_param {{ shape {{ {shape} }} }} }} {layers}"""
    net = Net(graph_of(text, phase), PassContext(seed=seed))
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for param in net.graph.learnable:
            if not net.graph.nodes[param.layer].type.startswith("Conv"):
                net.value(param).copy_(torch.rand(param.shape, generator=generator) + 0.5)
    return net


def steps_of(net: Net, keep: Collection[int] | None = None) -> list[tuple[str, str]]:
    """The names of each step's layers, and of its operation."""
    steps = net.steps(range(len(net.graph)), outputs(net) if keep is None else keep)
    return [(names(step), type(step.operation).__name__) for step in steps if step.operation is not None]


def names(step: FusionStep) -> str:
    return " ".join(node.name for node in step.nodes)


def outputs(net: Net) -> frozenset[int]:
    return frozenset(edge.index for edge in net.graph.outputs)


def edge_of(graph: LayerGraph, layer: str) -> int:
    """The first top of a layer."""
    return graph.nodes[graph.index_of[layer]].tops[0]


def a_pass(
    net: Net, *, fused: bool, last: bool = True, double: bool = True, keep: Collection[int] = ()
) -> dict[str, Tensor]:
    """The outputs, and the gradients of a random sum of theirs, of the input and of all parameters.

    Args:
        fused: ``keep`` and the outputs are all that anybody wants of the blobs; else all blobs are.
        last: in channels-last layout.
    """
    generator = torch.Generator().manual_seed(11)
    dtype = torch.float64 if double else torch.float32
    net = net.to(dtype)
    x = torch.randn(net.graph.edges[0].shape, generator=generator).to(dtype)
    layout = torch.channels_last if last and x.dim() == 4 else torch.contiguous_format
    x = x.contiguous(memory_format=layout).requires_grad_(torch.is_grad_enabled())
    values = {0: x}
    net.zero_grad()
    net.run(0, len(net.graph), values, {*outputs(net), *keep} if fused else None)
    made = {f"value {edge}": values[edge].detach().clone() for edge in sorted({*outputs(net), *keep})}
    tops = [values[edge] for edge in sorted(outputs(net)) if values[edge].requires_grad]
    if tops:
        diffs = [torch.randn(top.shape, generator=generator).to(dtype) for top in tops]
        torch.autograd.backward(tops, diffs)
        assert x.grad is not None
        made["diff x"] = x.grad
        made |= {f"diff {name}": p.grad for name, p in net.named_parameters() if p.grad is not None}
    made |= {f"blob {name}": p.detach().clone() for name, p in net.named_parameters() if not p.requires_grad}
    return made


def assert_same(fused: dict[str, Tensor], plain: dict[str, Tensor], tolerance: float) -> None:
    """All tensors, the largest difference relative to the largest element."""
    assert fused.keys() == plain.keys()
    for name, value in plain.items():
        scale = max(1e-3, float(value.abs().max()))
        assert float((fused[name] - value).abs().max()) <= tolerance * scale, name
