"""Buckets: parameters whose gradients or weights go between ranks in one go, as flat messages on the host."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from bpt.parallel.exchange.flat import unflatten
from bpt.system.comm.base import Communicator
from bpt.system.device import CPU

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
        self.elements = {name: p.numel() for name, p in parameters}
        self.label = _in_few_words(list(self.elements))
        self._small = {name: p for name, p in parameters if p.numel() < LARGE}
        self._large = {name: p for name, p in parameters if p.numel() >= LARGE}
        self.names = [_in_few_words(list(self._small))] if self._small else []
        self.names += self._large
        self.packed = {name: p.numel() for name, p in self._small.items()} if len(self._small) > 1 else {}
        self._packed: Tensor | None = None  # where gradients of small ones stay until the next are packed
        self._packed_parts: list[Tensor] = []  # the part of each
        self._sent: list[Tensor] = []

    def pack_gradients(self) -> list[Message]:
        """Return the gradients as messages, to be summed in place. A parameter without one counts as having zeros."""
        return _on_host(self.pack_gradients_on(CPU))

    def pack_gradients_on(self, device: torch.device) -> list[Tensor]:
        """Return the gradients as ``pack_gradients`` does, in the memory of ``device``, which is the same each time."""
        if self._packed is None:
            self._packed = self._make_room(device)
            self._packed_parts = self._small_parts(self._packed)
        return self._pack(self._packed, lambda parameter: parameter.grad)

    def contents(self) -> list[dict[str, Tensor]]:
        """Return, for each packed message in order, the part of each parameter; shares the message's memory."""
        sent = list(self._sent)
        of_small = [dict(zip(self._small, self._small_parts(sent.pop(0)), strict=True))] if self._small else []
        return [*of_small, *({name: tensor} for name, tensor in zip(self._large, sent, strict=True))]

    def unpack_gradients(self) -> None:
        """Set the gradients of the parameters to the content of the messages."""
        for parameter, values in self._unpack():
            parameter.grad = (
                values
                if values.dtype == parameter.dtype and values.device == parameter.device
                else values.to(parameter.device, parameter.dtype, non_blocking=True)
            )

    def drop_gradients(self) -> None:
        """Drop the gradients: this rank does not need the sums."""
        for parameter in self.parameters:
            parameter.grad = None
        self._sent = []

    def pack_weights(self) -> list[Message]:
        """Return the weights as messages, to be overwritten on ranks that take them over."""
        # In memory of its own: the update rule may still need that of the gradients.
        return _on_host(self._pack(self._make_room(), Tensor.detach))

    def unpack_weights(self) -> None:
        """Set the values of the parameters to the content of the messages."""
        for parameter, values in self._unpack():
            target = parameter.detach()
            if target.data_ptr() != values.data_ptr():
                target.copy_(values)

    def _make_room(self, device: torch.device = CPU) -> Tensor:
        return torch.empty(sum(p.numel() for p in self._small.values()), dtype=self.wire, device=device)

    def _pack(self, room: Tensor, values_of: Callable[[nn.Parameter], Tensor | None]) -> list[Tensor]:
        self._sent = [room] if self._small else []
        found = [(part, values_of(each)) for part, each in zip(self._parts_of(room), self._small.values(), strict=True)]
        if parts := [part for part, values in found if values is not None]:
            torch._foreach_copy_(parts, [values for _, values in found if values is not None])
        for part in (part for part, values in found if values is None):
            part.zero_()
        for parameter in self._large.values():
            values = values_of(parameter)
            self._sent.append(
                torch.zeros(parameter.shape, dtype=self.wire, device=room.device)
                if values is None
                else values.to(room.device, self.wire).contiguous()
            )
        return list(self._sent)

    def _unpack(self) -> Iterator[tuple[nn.Parameter, Tensor]]:
        sent, self._sent = self._sent, []
        if self._small:
            yield from zip(self._small.values(), self._parts_of(sent.pop(0)), strict=True)
        yield from zip(self._large.values(), sent, strict=True)

    def _parts_of(self, room: Tensor) -> list[Tensor]:
        return self._packed_parts if room is self._packed else self._small_parts(room)

    def _small_parts(self, packed: Tensor) -> list[Tensor]:
        """Return the small parameters' parts of the message that they share."""
        return unflatten(packed, list(self._small.values()))


def _on_host(messages: list[Tensor]) -> list[Message]:
    return [message.numpy() for message in messages]


def _in_few_words(names: Sequence[str]) -> str:
    return f"{names[0]} … {names[-1]}" if len(names) > 1 else "".join(names)
