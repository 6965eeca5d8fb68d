"""RING: as ALLREDUCE, by messages round a ring of the ranks (Hybrid, section 3.2, Fig. 3)."""

from __future__ import annotations

from functools import partial

from bpt.comm.ring import ring_allreduce
from bpt.exchange.allreduce import Allreduce
from bpt.exchange.base import EXCHANGES
from bpt.schedule import instructions as do


@EXCHANGES.register("RING")
class Ring(Allreduce):
    """A segment's gradients go round the ring while the segments before it run backward.

    All ranks get the same bits, as under ALLREDUCE; between those two the order of sums may differ.
    """

    def start(self, segment: int) -> None:
        for bucket in self.buckets[segment]:
            for name, message in zip(bucket.names, bucket.pack_gradients(), strict=True):
                self.comm_thread.submit(partial(ring_allreduce, bucket.comm, message), do.Exchange(segment), name)
