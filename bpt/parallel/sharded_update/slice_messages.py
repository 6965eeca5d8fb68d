"""Messages of slices: parameters as flat messages in which each rank's slices are one run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from bpt.engine.optim.weight_slices import WeightSlice, WeightSlices
from bpt.parallel.exchange.buckets import LARGE, Bucket
from bpt.system.device import CPU


class SliceMessage:
    """The slices of some parameters, on all ranks of a communicator, as one message.

    Its runs belong to the ranks: a run has a rank's slice of each parameter, one behind the other. So a sum of runs
    goes to the rank that updates them, and a message of one parameter has its elements in their order.

    Args:
        name: for the tables.
        slices: this rank's.
        bucket: has the communicator, and the type of numbers on their way.
    """

    def __init__(self, name: str, slices: Sequence[WeightSlice], bucket: Bucket) -> None:
        self.name = name
        self.comm = bucket.comm
        self.slices = slices
        self._wire = bucket.wire
        self._own = [each.value.numel() for each in slices]
        self.counts = [sum(stop - start for start, stop in at) for at in zip(*(s.bounds for s in slices), strict=True)]

    def pack_gradients(self) -> Tensor:
        """Return the gradients of the parameters on the host, and drop them; one that is missing counts as zeros."""
        rows = []
        for each in self.slices:
            gradient, each.parameter.grad = each.parameter.grad, None
            empty = torch.zeros(each.parameter.numel(), dtype=self._wire) if gradient is None else gradient
            rows.append(empty.reshape(-1).to(CPU, self._wire))
        return self._joined(rows)

    def give_gradients(self, run: Tensor) -> None:
        """Give this rank's slices their gradients: the sums in its run."""
        for each, part in zip(self.slices, torch.split(run, self._own), strict=True):
            each.value.grad = part.to(each.value.device, each.value.dtype)

    def pack_weights(self) -> Tensor:
        """Return room for the weights of all ranks on the host, with this rank's; the parameter's own if possible."""
        first = self.slices[0].parameter.detach()
        shares = len(self.slices) == 1 and first.device == CPU and first.is_contiguous() and first.dtype == self._wire
        room = first.view(-1) if shares else torch.empty(sum(self.counts), dtype=self._wire)
        own = torch.split(room, self.counts)[self.comm.rank]
        for each, part in zip(self.slices, torch.split(own, self._own), strict=True):
            if part.data_ptr() != each.value.data_ptr():
                part.copy_(each.value.detach())
        return room

    def unpack_weights(self, room: Tensor) -> None:
        """Set the parameters to the weights of all ranks."""
        rows = [each.parameter.detach() for each in self.slices]
        if room.data_ptr() == rows[0].data_ptr():
            return
        joined = [torch.empty(row.numel(), dtype=self._wire) for row in rows]
        for whole, part, (start, stop) in self._parts(joined, room):
            whole[start:stop] = part
        for row, whole in zip(rows, joined, strict=True):
            row.copy_(whole.view(row.shape))

    def _joined(self, rows: Sequence[Tensor]) -> Tensor:
        """Return whole parameters as one message, which is the parameter itself if there is one only."""
        if len(rows) == 1:
            return rows[0].contiguous()
        room = torch.empty(sum(self.counts), dtype=self._wire)
        for row, part, (start, stop) in self._parts(rows, room):
            part.copy_(row[start:stop])
        return room

    def _parts(self, rows: Sequence[Tensor], room: Tensor) -> Iterator[tuple[Tensor, Tensor, tuple[int, int]]]:
        """Yield each parameter with each rank's part of it in the message, and the elements of this part."""
        position = 0
        for rank in range(self.comm.size):
            for row, each in zip(rows, self.slices, strict=True):
                start, stop = each.bounds[rank]
                yield row, room[position : position + stop - start], (start, stop)
                position += stop - start


def messages_of(bucket: Bucket, slices: WeightSlices) -> list[SliceMessage]:
    """Return the messages of a bucket's parameters: one for all small ones, and one for each large one."""
    own = [each for parameter in bucket.parameters if (each := slices.of(parameter))]
    small = [each for each in own if each.parameter.numel() < LARGE]
    groups = [small] if small else []
    groups += [[each] for each in own if each.parameter.numel() >= LARGE]
    return [SliceMessage(name, group, bucket) for name, group in zip(bucket.names, groups, strict=True)]
