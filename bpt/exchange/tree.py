"""TREE: gradients are reduced to one rank, which updates the weights and broadcasts them.

This is how Caffe trains on several GPUs since its first release, and the baseline "OrigDP" of the CGDP paper: its steps
T-1 to T-5 (section 2.3), with the tree of pairwise sends that Caffe has.
"""

from __future__ import annotations

from bpt.comm.base import Communicator
from bpt.comm.tree import tree_bcast, tree_reduce
from bpt.exchange.base import EXCHANGES, Exchange, Send, broadcast
from bpt.exchange.buckets import Bucket
from bpt.exchange.device_tree import DeviceTree
from bpt.proto import bpt_pb2 as pb
from bpt.schedule import instructions as do


@EXCHANGES.register("TREE")
class Tree(Exchange):
    """Backward, then a reduction to rank 0 (T-4), update there (T-5), and a broadcast at the start of the next
    iteration (T-1). Nothing overlaps.

    Ranks but the first hold weights that are an update behind, until the next broadcast. Messages go from rank to rank
    along a binomial tree, between GPUs of a host straight from device to device, if these can read each other's memory;
    or, by ``tree_param { sends: LIBRARY }``, as the library's collectives send them. The sums are the same up to
    rounding.
    """

    broadcasts = True

    def _make_ready(self) -> None:
        pairwise = self.param is None or self.param.tree_param.sends == pb.TreeParameter.PAIRWISE
        self._reduce: Send = tree_reduce if pairwise else Communicator.Reduce
        self._bcast: Send = tree_bcast if pairwise else Communicator.Bcast
        on_devices = pairwise and self.device.type != "cpu"
        made = [(b, DeviceTree.made(b, self.device)) for group in self.buckets for b in group] if on_devices else []
        self._on_device = {id(bucket): tree for bucket, tree in made if tree is not None}

    def updates(self, bucket: Bucket) -> bool:
        return bucket.comm.rank == 0

    def start(self, segment: int) -> None:
        """All gradients go when the last is there."""

    def wait(self) -> None:
        self.comm_thread.wait()
        for segment in reversed(range(len(self.buckets))):
            for bucket in self.buckets[segment]:
                tree = self._on_device.get(id(bucket))
                if tree is not None:
                    with bucket.comm.events.part_of(do.Exchange(segment), bucket.label):
                        tree.reduce()
                for name, message in zip(bucket.names, bucket.pack_gradients(), strict=True) if tree is None else ():
                    with bucket.comm.events.part_of(do.Exchange(segment), name):
                        self._reduce(bucket.comm, message)
                if self.updates(bucket):
                    (tree or bucket).unpack_gradients()
                else:
                    bucket.drop_gradients()

    def broadcast(self) -> None:
        for group in self.buckets:
            for bucket in group:
                tree = self._on_device.get(id(bucket))
                if tree is None:
                    broadcast([bucket], send=self._bcast)
                    continue
                with bucket.comm.events.part_of(do.Broadcast(), bucket.label):
                    tree.broadcast()

    def close(self, failed: bool = False) -> None:
        while self._on_device:
            _, tree = self._on_device.popitem()
            if not failed:
                tree.close()
