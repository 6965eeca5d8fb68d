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


class Outputs:
    """Assembles the output blobs of ``net``; its calls are collective over ``samples`` and ``stages``.

    Losses and accuracies are summands on each rank, and are summed. Other blobs have a row for each sample, and are
    concatenated in the order of the batch.
    """

    def __init__(
        self,
        net: Net,
        samples: Communicator | None = None,
        stages: Communicator | None = None,
        present: bool = True,
    ) -> None:
        """Store the ranks that share the outputs.

        Args:
            samples: the ranks that share a batch and run the same layers; by default this rank is alone.
            stages: the ranks that run the other layers; by default there are none.
            present: whether this rank has outputs.
        """
        self._net = net
        self._samples = samples or SerialCommunicator()
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
        if self._samples.size == self._stages.size == 1:
            return {edge.blob: values[edge.index].float() for edge in here}
        own = {edge.blob: self._combine(edge, values[edge.index].float().cpu().contiguous()) for edge in here}
        found = {blob: value for stage in self._stages.allgather(own) for blob, value in stage.items()}
        return {edge.blob: found[edge.blob] for edge in self._net.graph.outputs if edge.blob in found}

    def listed(self, values: Mapping[int, Tensor]) -> dict[str, Tensor]:
        """Return the rows (1, 1, number, columns) of each blob from all ranks, in the order of ranks, by name.

        Args:
            values: this rank's values, by edge index.
        """
        own = {edge.blob: self._rows(values[edge.index]) for edge in self.edges if edge.index in values}
        found = {blob: rows for stage in self._stages.allgather(own) for blob, rows in stage.items()}
        return {edge.blob: found[edge.blob] for edge in self._net.graph.outputs if edge.blob in found}

    def _rows(self, value: Tensor) -> Tensor:
        value = value.cpu().contiguous()
        counts = self._samples.allgather(value.numel())
        whole = value.new_empty(sum(counts))
        self._samples.Allgatherv(value.numpy(), whole.numpy(), counts)
        return whole.view(1, 1, -1, value.shape[-1])

    def total(self, loss: float) -> float:
        """Return the sum of a loss over all ranks."""
        if not self._present:
            return 0.0
        sums = torch.tensor([loss], dtype=torch.float64)
        self._samples.Allreduce(sums.numpy())
        self._stages.Allreduce(sums.numpy())
        return sums.item()

    def _combine(self, edge: Edge, value: Tensor) -> Tensor:
        if self._samples.size == 1:
            return value
        node = self._net.graph.nodes[edge.producer]
        if not edge.shape or node.tops.index(edge.index) < LAYERS[node.type].sums_over_samples:
            value = value.clone()
            self._samples.Allreduce(value.numpy())
            return value
        context = self._net.context
        row = count(value.shape[1:])
        counts = [rows * row for rows in self._samples.allgather(value.shape[0])]
        whole = value.new_empty(sum(counts))
        self._samples.Allgatherv(value.numpy(), whole.numpy(), counts)
        rows = whole.view(-1, *value.shape[1:])
        rotated = int(context.rotation * len(rows)) if self._net.training else 0
        return rows.roll(rotated, 0)
