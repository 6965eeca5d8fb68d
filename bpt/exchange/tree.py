"""TREE: gradients are reduced to one rank, which updates the weights and broadcasts them.

This is how Caffe trains on several GPUs since its first release, and the baseline "OrigDP" of the CGDP paper: its steps
T-1 to T-5 (section 2.3), with the tree of pairwise sends that Caffe has.
"""

from __future__ import annotations

from bpt.comm.tree import tree_bcast, tree_reduce
from bpt.exchange.base import EXCHANGES, Exchange
from bpt.exchange.buckets import Bucket
from bpt.proto import bpt_pb2 as pb
from bpt.schedule import instructions as do


@EXCHANGES.register("TREE")
class Tree(Exchange):
    """Backward, then a reduction to rank 0 (T-4), update there (T-5), and a broadcast at the start of the next
    iteration (T-1). Nothing overlaps.

    Ranks but the first hold weights that are an update behind, until the next broadcast. Messages go from rank to rank
    along a binomial tree or, by ``tree_param { sends: LIBRARY }``, as the library's collectives send them. The sums are
    the same up to rounding.
    """

    broadcasts = True

    @property
    def _pairwise(self) -> bool:
        return self.param is None or self.param.tree_param.sends == pb.TreeParameter.PAIRWISE

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
                        if self._pairwise:
                            tree_reduce(bucket.comm, message)
                        else:
                            bucket.comm.Reduce(message)
                if self.updates(bucket):
                    bucket.unpack_gradients()
                else:
                    bucket.drop_gradients()

    def broadcast(self) -> None:
        if not self._pairwise:
            super().broadcast()
            return
        for group in self.buckets:
            for bucket in group:
                for name, message in zip(bucket.names, bucket.pack_weights(), strict=True):
                    with bucket.comm.events.part_of(do.Broadcast(), name):
                        tree_bcast(bucket.comm, message)
                bucket.unpack_weights()
