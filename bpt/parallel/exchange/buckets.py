"""Buckets: parameters whose gradients or weights go between ranks in one go, as flat messages on the host."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from bpt.system.comm.base import Communicator

LARGE = 2**18  # elements; from here on a parameter is a message of its own, which saves a copy

Message = NDArray[np.floating[Any]]


class Bucket:
    """Parameters that the ranks of ``comm`` hold alike. Small ones travel packed into one message.

    All ranks cut their parameters into the same messages, whatever layout a rank's gradients have.

    Args:
        parameters: in the same order on all ranks, each with a name for the tables.
        comm: used by nobody else while a message of this bucket is on its way.
        wire: of the numbers in messages, see Precision; by default those of the parameters.

    Attributes:
        label: its parameters in few words.
        elements: of each parameter, by name.
        names: of the messages, in order.
        packed: elements of each parameter that travels with others in the first message.
    """

    def __init__(
        self, parameters: Sequence[tuple[str, nn.Parameter]], comm: Communicator, wire: torch.dtype | None = None
    ) -> None:
        self.comm = comm
        self.wire = wire or next((p.dtype for _, p in parameters), torch.float32)
        self.parameters = tuple(p for _, p in parameters)
        named = [name for name, _ in parameters]
        self.elements = {name: p.numel() for name, p in parameters}
        self.label = f"{named[0]} … {named[-1]}" if len(named) > 1 else "".join(named)
        self._small = [p for p in self.parameters if p.numel() < LARGE]
        self._large = [p for p in self.parameters if p.numel() >= LARGE]
        packed = [name for name, p in parameters if p.numel() < LARGE]
        self._named_small = packed
        self._named_large = [name for name, p in parameters if p.numel() >= LARGE]
        self.names = [f"{packed[0]} … {packed[-1]}" if len(packed) > 1 else packed[0]] if packed else []
        self.names += self._named_large
        self.packed = {name: p.numel() for name, p in parameters if p.numel() < LARGE} if len(packed) > 1 else {}
        self._packed: Tensor | None = None  # where gradients of small ones stay until the next are packed
        self._sent: list[Tensor] = []

    def pack_gradients(self) -> list[Message]:
        """Return the gradients as messages, to be summed in place. A parameter without one counts as having zeros."""
        if self._packed is None:
            self._packed = self._room()
        return self._pack(self._packed, [p.grad for p in self._small], [p.grad for p in self._large])

    def contents(self) -> list[dict[str, Tensor]]:
        """Return, for each packed message in order, the part of each parameter; shares the message's memory."""
        large = self._sent[1:] if self._small else self._sent
        of_large = [{name: tensor} for name, tensor in zip(self._named_large, large, strict=True)]
        if not self._small:
            return of_large
        return [dict(zip(self._named_small, self._runs(self._sent[0]), strict=True)), *of_large]

    def unpack_gradients(self) -> None:
        """Set the gradients of the parameters to the content of the messages."""
        for parameter, values in self._unpack():
            parameter.grad = values.to(parameter.device, parameter.dtype, non_blocking=True)

    def drop_gradients(self) -> None:
        """Drop the gradients: this rank does not need the sums."""
        for parameter in self.parameters:
            parameter.grad = None
        self._sent = []

    def pack_weights(self) -> list[Message]:
        """Return the weights as messages, to be overwritten on ranks that take them over."""
        # In memory of its own: the update rule may still need that of the gradients.
        return self._pack(self._room(), [p.detach() for p in self._small], [p.detach() for p in self._large])

    def unpack_weights(self) -> None:
        """Set the values of the parameters to the content of the messages."""
        for parameter, values in self._unpack():
            target = parameter.detach()
            if target.data_ptr() != values.data_ptr():
                target.copy_(values)

    def _room(self) -> Tensor:
        return torch.empty(sum(p.numel() for p in self._small), dtype=self.wire)

    def _pack(self, room: Tensor, small: list[Tensor | None], large: list[Tensor | None]) -> list[Message]:
        self._sent = []
        if self._small:
            place = 0
            for parameter, values in zip(self._small, small, strict=True):
                view = room[place : place + parameter.numel()].view(parameter.shape)
                _ = view.zero_() if values is None else view.copy_(values)
                place += parameter.numel()
            self._sent.append(room)
        for parameter, values in zip(self._large, large, strict=True):
            self._sent.append(
                torch.zeros(parameter.shape, dtype=self.wire)
                if values is None
                else values.to("cpu", self.wire).contiguous()
            )
        return [tensor.numpy() for tensor in self._sent]

    def _unpack(self) -> Iterator[tuple[nn.Parameter, Tensor]]:
        sent, self._sent = self._sent, []
        if self._small:
            yield from zip(self._small, self._runs(sent[0]), strict=True)
            sent = sent[1:]
        yield from zip(self._large, sent, strict=True)

    def _runs(self, packed: Tensor) -> list[Tensor]:
        """Return the small parameters' parts of the message that they share."""
        runs = torch.split(packed, [p.numel() for p in self._small])
        return [run.view(p.shape) for p, run in zip(self._small, runs, strict=True)]
