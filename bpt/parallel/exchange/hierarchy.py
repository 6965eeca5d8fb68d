"""Hierarchy: sums over ranks in two levels, within hosts and between them, and by a codec where that is meant to be."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from bpt.parallel.exchange.buckets import Message
from bpt.parallel.exchange.codec.base import Codec
from bpt.parallel.exchange.transport.transport import Transport
from bpt.system.comm.base import Communicator


class Hierarchy:
    """Sums messages in two levels: first over the ranks of a host, then over the hosts; all ranks get the result.

    Within a host the library copies in memory; between hosts there is one stream for each, of the bytes of one rank a
    host: of H hosts each sends 2 (H - 1) / H of a message, which is the least there can be, whatever its ranks.

    Made by ``made``.
    """

    def __init__(
        self, transport: Transport, host: Communicator | None, leaders: Communicator, codec: Codec | None
    ) -> None:
        self._transport = transport
        self._host = host  # None: the ranks are one level
        self._leaders = leaders
        self._codec = codec

    @classmethod
    def made(
        cls, comm: Communicator, transport: Transport, codec: Codec | None, everywhere: bool = False
    ) -> Hierarchy | None:
        """Return the hierarchy; ``None`` on all ranks if messages are summed directly over ``comm``. A collective call.

        Args:
            codec: is for links between hosts; without one, two levels are only for hosts with several ranks.
            everywhere: it is for all links.
        """
        if everywhere and codec:
            return cls(transport, None, comm, codec)
        host = comm.Split_type_shared()
        if host.size == comm.size:
            host.Free()
            return None
        leaders = comm.Split(int(host.rank > 0))  # one a host, rank 0 first; the other group does nothing
        found = cls(transport, host, leaders, codec)
        if codec or host.bcast(leaders.size) < comm.size:
            return found
        found.close()
        return None

    def __call__(self, message: Message, gradients: Mapping[str, Tensor]) -> None:
        """Set ``message``, whose parts by parameter are ``gradients``, to its sum; a collective call."""
        host = self._host
        if host is not None and host.size > 1:
            host.Reduce(message)
        if host is None or host.rank == 0:
            self._sum(message, gradients)
        if host is not None and host.size > 1:
            host.Bcast(message)

    def _sum(self, message: Message, gradients: Mapping[str, Tensor]) -> None:
        if self._codec:
            self._codec.sum(gradients, self._leaders, self._transport)
        else:
            self._transport.sum(self._leaders, message)

    def close(self) -> None:
        """Free what it has made; a collective call."""
        if self._host is not None:
            self._leaders.Free()
            self._host.Free()
