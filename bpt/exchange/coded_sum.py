"""CodedSum: gradients summed over ranks by a codec, where it is meant to be used: between hosts, or everywhere."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from bpt.comm.base import Communicator
from bpt.exchange.buckets import Message
from bpt.exchange.codec.base import Codec
from bpt.exchange.transport.transport import Transport


class CodedSum:
    """The sum over ``ranks``. Where each is the first of several on its host, it takes part for all of them: their
    gradients are added there as they are, by the library, which copies in memory.

    Made by ``made``.
    """

    def __init__(self, codec: Codec, transport: Transport, host: Communicator | None, ranks: Communicator) -> None:
        self._codec = codec
        self._transport = transport
        self._host = host
        self._ranks = ranks

    @classmethod
    def made(cls, comm: Communicator, codec: Codec, transport: Transport, everywhere: bool) -> CodedSum | None:
        """``None``, on all ranks: there is no link that the codec is for. A collective call.

        Args:
            comm: the ranks.
            everywhere: also on links within a host.
        """
        if everywhere:
            return cls(codec, transport, None, comm)
        host = comm.Split_type_shared()
        leaders = comm.Split(int(host.rank > 0))  # one a host, rank 0 first; the other group does nothing
        found = cls(codec, transport, host, leaders)
        if host.bcast(leaders.size) > 1:
            return found
        found.close()
        return None

    def __call__(self, message: Message, gradients: Mapping[str, Tensor]) -> None:
        """Leave the sum in ``message``, whose parts ``gradients`` are, by parameter; a collective call."""
        host = self._host
        if host is None:
            self._codec.sum(gradients, self._ranks, self._transport)
            return
        if host.size > 1:
            host.Reduce(message)
        if host.rank == 0:
            self._codec.sum(gradients, self._ranks, self._transport)
        if host.size > 1:
            host.Bcast(message)

    def close(self) -> None:
        """Give back what it has made; a collective call."""
        if self._host is not None:
            self._ranks.Free()
            self._host.Free()
