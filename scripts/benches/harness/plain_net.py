"""A network text as plain PyTorch: the modules of torch.nn that anyone would write for it.

On images and on volumes. BatchNorm with its Scale is one ``nn.BatchNorm2d`` or ``3d``. Loss is ``cross_entropy``;
nothing else is clever. It can take over the parameters of bpt's net, so that both compute the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from bpt.config.proto import bpt_pb2 as pb
from bpt.graph.layer_graph import LayerGraph, LayerNode
from bpt.graph.layer_spec import Shape


def _one(values: Sequence[int], default: int) -> int:
    return values[0] if values else default


def _convolution(node: LayerNode, bottom: Shape) -> nn.Module:
    p = node.spec.param.convolution_param
    return (nn.Conv2d, nn.Conv3d)[len(bottom) - 4](
        bottom[1], p.num_output, _one(p.kernel_size, 0), _one(p.stride, 1), _one(p.pad, 0),
        groups=p.group, bias=p.bias_term,
    )  # fmt: skip


def _pooling(node: LayerNode, bottom: Shape) -> nn.Module:
    p = node.spec.param.pooling_param
    volumes = len(bottom) == 5
    if p.global_pooling:
        return nn.AdaptiveAvgPool3d(1) if volumes else nn.AdaptiveAvgPool2d(1)
    ceil = p.round_mode == pb.PoolingParameter.CEIL
    kinds = (nn.MaxPool2d, nn.MaxPool3d) if p.pool == pb.PoolingParameter.MAX else (nn.AvgPool2d, nn.AvgPool3d)
    return kinds[volumes](p.kernel_size, p.stride, p.pad, ceil_mode=ceil)


def _inner_product(node: LayerNode, bottom: Shape) -> nn.Module:
    p = node.spec.param.inner_product_param
    count = torch.Size(bottom[1:]).numel()
    return nn.Sequential(nn.Flatten(), nn.Linear(count, p.num_output, bias=p.bias_term))


def _lrn(node: LayerNode, bottom: Shape) -> nn.Module:
    p = node.spec.param.lrn_param
    return nn.LocalResponseNorm(p.local_size, p.alpha, p.beta, p.k)


def _batch_norm(node: LayerNode, bottom: Shape) -> nn.Module:
    param = node.spec.param.batch_norm_param  # with the Scale behind it
    kind = (nn.BatchNorm2d, nn.BatchNorm3d)[len(bottom) - 4]
    return kind(bottom[1], eps=param.eps, momentum=1 - param.moving_average_fraction)


def _scale(node: LayerNode, bottom: Shape) -> nn.Module:
    return nn.Identity() if node.spec.param.scale_param.num_axes else _Gain()


class _Gain(nn.Module):
    """One factor that is learned."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(()))

    def forward(self, *bottoms: Tensor) -> Tensor:
        return bottoms[0] * self.weight


class _Attention(nn.Module):
    """Queries, keys and values (N, channels, places …), not scaled, as in SAGAN."""

    def forward(self, *bottoms: Tensor) -> Tensor:
        query, key, value = (bottom.flatten(2).transpose(1, 2) for bottom in bottoms)
        found = nn.functional.scaled_dot_product_attention(query, key, value, scale=1.0)
        return found.transpose(1, 2).reshape(bottoms[2].shape)


class _Factor(nn.Module):
    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, *bottoms: Tensor) -> Tensor:
        return bottoms[0] * self.factor


class _Eltwise(nn.Module):
    def forward(self, *bottoms: Tensor) -> Tensor:
        return bottoms[0] + bottoms[1]


class _Concat(nn.Module):
    def forward(self, *bottoms: Tensor) -> Tensor:
        return torch.cat(bottoms, 1)


class _Loss(nn.Module):
    def forward(self, *bottoms: Tensor) -> Tensor:
        return nn.functional.cross_entropy(bottoms[0].flatten(1), bottoms[1])


MODULES: dict[str, Callable[[LayerNode, Shape], nn.Module]] = {
    "Convolution": _convolution,
    "Pooling": _pooling,
    "InnerProduct": _inner_product,
    "LRN": _lrn,
    "ReLU": lambda node, bottom: nn.ReLU(inplace=node.spec.tops == node.spec.bottoms),
    "Dropout": lambda node, bottom: nn.Dropout(node.spec.param.dropout_param.dropout_ratio),
    "BatchNorm": _batch_norm,
    "Scale": _scale,
    "Attention": lambda node, bottom: _Attention(),
    "Power": lambda node, bottom: _Factor(node.spec.param.power_param.scale),
    "Eltwise": lambda node, bottom: _Eltwise(),
    "Concat": lambda node, bottom: _Concat(),
    "Softmax": lambda node, bottom: nn.Softmax(node.spec.param.softmax_param.axis),
    "SoftmaxWithLoss": lambda node, bottom: _Loss(),
}


class PlainNet(nn.Module):
    """The layers of ``graph`` as stock modules; forward returns the weighted sum of the losses, or else the output."""

    def __init__(self, graph: LayerGraph) -> None:
        super().__init__()
        self.steps: list[tuple[nn.Module, tuple[int, ...], int]] = []
        self._graph = graph
        self.losses = [(edge.index, edge.loss_weight) for edge in graph.losses]
        alias: dict[int, int] = {}  # a Split's copies are the blob itself
        for node in graph.nodes:
            bottoms = tuple(alias.get(edge, edge) for edge in node.bottoms)
            if node.type == "Split":
                alias.update(dict.fromkeys(node.tops, bottoms[0]))
            elif node.type != "Input":
                module = MODULES[node.type](node, graph.edges[node.bottoms[0]].shape)
                self.add_module(f"layer{node.index}", module)
                self.steps.append((module, bottoms, node.tops[0]))
        # What nobody reads any more is dropped at once, as it is where a net is written by hand.
        last = {edge: step for step, (_, bottoms, _) in enumerate(self.steps) for edge in bottoms}
        last = {edge: step for edge, step in last.items() if not graph.edges[edge].loss_weight}
        self.done = [[edge for edge in last if last[edge] == step] for step in range(len(self.steps))]
        self.inputs = [edge.index for edge in graph.edges if graph.nodes[edge.producer].type == "Input"]

    def forward(self, *inputs: Tensor) -> Tensor:
        blobs = dict(zip(self.inputs, inputs, strict=True))
        for (module, bottoms, top), done in zip(self.steps, self.done, strict=True):
            blobs[top] = module(*(blobs[edge] for edge in bottoms))
            for edge in done:
                del blobs[edge]
        if not self.losses:
            return blobs[self.steps[-1][2]]
        total: Tensor | int = sum(blobs[edge] * weight for edge, weight in self.losses)
        assert isinstance(total, Tensor)
        return total

    def take_over(self, values: Mapping[tuple[str, int], Tensor]) -> None:
        """Copy parameters, and the statistics of BatchNorm.

        Args:
            values: (layer name, blob index) → values, as ``Net.values_by_name`` gives them.
        """
        with torch.no_grad():
            for node in self._graph.nodes:
                own = [values[node.name, blob] for blob in range(len(node.params))]
                if node.type == "BatchNorm":
                    mean, variance, factor = own
                    if not factor.any():
                        continue  # it has seen nothing
                    norm = self._module(node)
                    norm.running_mean.copy_(mean / factor)
                    norm.running_var.copy_(variance / factor)
                elif own:
                    normalises = node.type == "Scale" and bool(node.spec.param.scale_param.num_axes)
                    module = self._module(self._before(node) if normalises else node)
                    for name, value in zip(("weight", "bias"), own, strict=False):
                        getattr(module, name).copy_(value)

    def _module(self, node: LayerNode) -> Any:
        """That has the parameters."""
        module = self.get_submodule(f"layer{node.index}")
        return module[1] if isinstance(module, nn.Sequential) else module

    def _before(self, node: LayerNode) -> LayerNode:
        return self._graph.nodes[self._graph.edges[node.bottoms[0]].producer]
