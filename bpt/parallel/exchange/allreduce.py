"""ALLREDUCE: every rank gets the sum of the gradients, by the library's collective, and updates for itself."""

from __future__ import annotations

from bpt.engine import instructions as do
from bpt.parallel.exchange.base import EXCHANGES, Exchange
from bpt.parallel.exchange.buckets import Bucket


@EXCHANGES.register("ALLREDUCE")
class Allreduce(Exchange):
    """Sums a segment's gradients by an all-reduce while the segments before it run backward.

    The sum goes within hosts first, if there are several hosts with several ranks.

    All ranks get the same bits, so weights that started equal stay equal and are never sent.
    """

    levels = True

    def updates(self, bucket: Bucket) -> bool:
        return True

    def start(self, segment: int) -> None:
        for bucket in self.buckets[segment]:
            for name, sum_up in self._packed(bucket, self.transport.sum):
                self.comm_thread.submit(sum_up, do.ExchangeGradients(segment), name)

    def wait(self) -> None:
        self.comm_thread.wait()
        for group in self.buckets:
            for bucket in group:
                bucket.unpack_gradients()
