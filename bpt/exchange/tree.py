"""TREE: gradients are reduced to one rank, which updates the weights and broadcasts them.

This is how Caffe trains on several GPUs since its first release, and the baseline "OrigDP" of the CGDP paper.
"""

from __future__ import annotations

from bpt.exchange.base import EXCHANGES, Exchange
from bpt.exchange.buckets import Bucket
from bpt.schedule import instructions as do


@EXCHANGES.register("TREE")
class Tree(Exchange):
    """Backward, then Reduce to rank 0, update there, and Bcast at the start of the next iteration. Nothing overlaps.

    Ranks but the first hold weights that are an update behind, until the next broadcast.
    """

    broadcasts = True

    def updates(self, bucket: Bucket) -> bool:
        return bucket.comm.rank == 0

    def start(self, segment: int) -> None:
        """All gradients go when the last is there."""

    def wait(self) -> None:
        self.comm_thread.wait()
        for segment in reversed(range(len(self.buckets))):
            for bucket in self.buckets[segment]:
                for name, message in zip(bucket.names, bucket.pack_gradients(), strict=True):
                    with bucket.comm.events.part_of(do.Exchange(segment), name):
                        bucket.comm.Reduce(message)
                if self.updates(bucket):
                    bucket.unpack_gradients()
                else:
                    bucket.drop_gradients()
