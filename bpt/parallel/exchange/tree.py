"""TREE: gradients are reduced to one rank, which updates the weights and broadcasts them.

This is how Caffe trains on several GPUs since its first release, and the baseline "OrigDP" of the CGDP paper: its steps
T-1 to T-5 (section 2.3), with the tree of pairwise sends that Caffe has.
"""

from __future__ import annotations

from bpt.config.proto import bpt_pb2 as pb
from bpt.engine import instructions as do
from bpt.parallel.exchange.base import EXCHANGES, Exchange, broadcast
from bpt.parallel.exchange.buckets import Bucket
from bpt.parallel.exchange.device_tree import DeviceTree
from bpt.parallel.exchange.transport.transport import LIBRARY, TREE


@EXCHANGES.register("TREE")
class Tree(Exchange):
    """Reduces gradients to rank 0 (T-4), updates there (T-5), and broadcasts at the next iteration's start (T-1).

    All of this follows backward: nothing overlaps.

    Ranks but the first hold weights that are an update behind, until the next broadcast. Messages go from rank to rank
    along a binomial tree, between GPUs of a host straight from device to device, if these can read each other's memory;
    or, by ``tree_param { sends: LIBRARY }``, as the library's collectives send them. The sums are the same up to
    rounding. A codec is for gradients: weights travel as they are.
    """

    broadcasts = True

    def _make_ready(self) -> None:
        pairwise = self.param is None or self.param.tree_param.sends == pb.TreeParameter.PAIRWISE
        self.transport = TREE if pairwise else LIBRARY
        super()._make_ready()
        on_devices = pairwise and self.device.type != "cpu"
        plain = [b for group in self.buckets for b in group if b.comm not in self._hierarchies] if on_devices else []
        made = [(b, DeviceTree.made(b, self.device)) for b in plain]
        self._on_device = {id(bucket): tree for bucket, tree in made if tree is not None}

    def updates(self, bucket: Bucket) -> bool:
        return bucket.comm.rank == 0

    def start(self, segment: int) -> None:
        """Start to send all gradients when the last one is complete."""

    def wait(self) -> None:
        self.comm_thread.wait()
        for segment in reversed(range(len(self.buckets))):
            for bucket in self.buckets[segment]:
                tree = self._on_device.get(id(bucket))
                if tree is not None:
                    with bucket.comm.events.part_of(do.ExchangeGradients(segment), bucket.label):
                        tree.reduce()
                for name, sum_up in self._packed(bucket, self.transport.reduce) if tree is None else ():
                    with bucket.comm.events.part_of(do.ExchangeGradients(segment), name):
                        sum_up()
                if self.updates(bucket):
                    (tree or bucket).unpack_gradients()
                else:
                    bucket.drop_gradients()

    def broadcast(self) -> None:
        for group in self.buckets:
            for bucket in group:
                tree = self._on_device.get(id(bucket))
                if tree is None:
                    broadcast([bucket], send=self.transport.bcast)
                    continue
                with bucket.comm.events.part_of(do.Broadcast(), bucket.label):
                    tree.broadcast()

    def close(self, failed: bool = False) -> None:
        while self._on_device:
            _, tree = self._on_device.popitem()
            if not failed:
                tree.close()
        super().close(failed)
