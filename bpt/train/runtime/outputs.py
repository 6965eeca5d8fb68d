"""Assembles the outputs of a net for the whole batch from those of each rank."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from bpt.graph.layer_graph import Edge
from bpt.graph.layer_spec import count
from bpt.nn.layers import LAYERS
from bpt.nn.net import Net
from bpt.system.comm.base import Communicator
from bpt.system.comm.serial import SerialCommunicator
from bpt.train.runtime.layer_holders import LayerHolders


class Outputs:
    """Assembles the output blobs of ``net``; its calls are collective over ``samples`` and ``stages``.

    Losses and accuracies are summands on each rank, and are summed. Other blobs have a row for each sample, and are
    concatenated in the order of the batch.
    """

    def __init__(
        self,
        net: Net,
        samples: Communicator | LayerHolders | None = None,
        stages: Communicator | None = None,
        present: bool = True,
    ) -> None:
        """Store the ranks that share the outputs.

        Args:
            samples: the ranks that share a batch and run the same layers; if these are different ranks for different
                layers, by layer. By default this rank is alone.
            stages: the ranks that run the other layers; by default there are none.
            present: whether this rank has outputs.
        """
        self._net = net
        by_layer = samples if isinstance(samples, LayerHolders) else None
        everywhere = (samples if isinstance(samples, Communicator) else None) or SerialCommunicator()
        self._samples = by_layer.of_layers(net.graph) if by_layer else (everywhere,) * len(net.graph)
        self._groups = by_layer.groups if by_layer else (everywhere,)
        self._stages = stages or SerialCommunicator()
        self._present = present
        self.edges = net.graph.outputs if present else ()
        if self._stages.size > 1:
            self.edges = tuple(edge for edge in self.edges if net.part.runs(edge.producer))

    def whole(self, values: Mapping[int, Tensor]) -> dict[str, Tensor]:
        """Return the values of each blob for the whole batch, by name, on the CPU if there are several ranks.

        Args:
            values: this rank's values, by edge index.
        """
        here = [edge for edge in self.edges if edge.index in values]
        if self._groups[0].size == self._stages.size == 1:
            return {edge.blob: values[edge.index].float() for edge in here}
        own = {edge.blob: self._combine(edge, values[edge.index].float().cpu().contiguous()) for edge in here}
        found = {blob: value for stage in self._stages.allgather(own) for blob, value in stage.items()}
        return {edge.blob: found[edge.blob] for edge in self._net.graph.outputs if edge.blob in found}

    def listed(self, values: Mapping[int, Tensor]) -> dict[str, Tensor]:
        """Return the rows (1, 1, number, columns) of each blob from all ranks, in the order of ranks, by name.

        Args:
            values: this rank's values, by edge index.
        """
        own = {edge.blob: self._rows(edge, values[edge.index]) for edge in self.edges if edge.index in values}
        found = {blob: rows for stage in self._stages.allgather(own) for blob, rows in stage.items()}
        return {edge.blob: found[edge.blob] for edge in self._net.graph.outputs if edge.blob in found}

    def _group(self, edge: Edge) -> Communicator:
        group = self._samples[edge.producer]
        assert group, edge
        return group

    def _rows(self, edge: Edge, value: Tensor) -> Tensor:
        value, group = value.cpu().contiguous(), self._group(edge)
        counts = group.allgather(value.numel())
        whole = value.new_empty(sum(counts))
        group.Allgatherv(value.numpy(), whole.numpy(), counts)
        return whole.view(1, 1, -1, value.shape[-1])

    def total(self, loss: float) -> float:
        """Return the sum of a loss over all ranks."""
        if not self._present:
            return 0.0
        own = torch.tensor([loss], dtype=torch.float64)
        self._stages.Allreduce(own.numpy())
        for group in self._groups:  # each has one rank of every replica, or one for each of its shares
            total = own.clone()
            group.Allreduce(total.numpy())
        return total.item()

    def _combine(self, edge: Edge, value: Tensor) -> Tensor:
        group = self._group(edge)
        if group.size == 1:
            return value
        node = self._net.graph.nodes[edge.producer]
        if not edge.shape or node.tops.index(edge.index) < LAYERS[node.type].sums_over_samples:
            value = value.clone()
            group.Allreduce(value.numpy())
            return value
        context = self._net.context
        row = count(value.shape[1:])
        counts = [rows * row for rows in group.allgather(value.shape[0])]
        whole = value.new_empty(sum(counts))
        group.Allgatherv(value.numpy(), whole.numpy(), counts)
        rows = whole.view(-1, *value.shape[1:])
        rotated = int(context.rotation * len(rows)) if self._net.training else 0
        return rows.roll(rotated, 0)
