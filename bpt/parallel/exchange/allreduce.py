"""ALLREDUCE: every rank gets the sum of the gradients, by the library's collective, and updates for itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bpt.config.proto import bpt_pb2 as pb
from bpt.engine import instructions as do
from bpt.parallel.exchange.base import EXCHANGES, Exchange
from bpt.parallel.exchange.buckets import Bucket

if TYPE_CHECKING:
    from bpt.parallel.exchange.transport.process_groups import ProcessGroups


@EXCHANGES.register("ALLREDUCE")
class Allreduce(Exchange):
    """Sums a segment's gradients by an all-reduce while the segments before it run backward.

    The sum goes within hosts first, if there are several hosts with several ranks.

    All ranks get the same bits, so weights that started equal stay equal and are never sent. With ``transport:
    TORCH_DISTRIBUTED`` the library is torch.distributed, which finds its own way within and between hosts.
    """

    levels = True
    _by_torch: ProcessGroups | None = None

    def _make_ready(self) -> None:
        if self.param is None or self.param.transport != pb.ParallelParameter.TORCH_DISTRIBUTED:
            super()._make_ready()
            return
        # Only what this run needs; see docs/architecture.md.
        from bpt.parallel.exchange.transport.process_groups import ProcessGroups  # noqa: PLC0415

        self._hierarchies = {}
        self._by_torch = ProcessGroups([bucket.comm for group in self.buckets for bucket in group], self.device)

    def updates(self, bucket: Bucket) -> bool:
        return True

    def start(self, segment: int) -> None:
        for bucket in self.buckets[segment]:
            packed = self._by_torch.packed(bucket) if self._by_torch else self._packed(bucket, self.transport.sum)
            for name, sum_up in packed:
                self.comm_thread.submit(sum_up, do.ExchangeGradients(segment), name)

    def wait(self) -> None:
        self.comm_thread.wait()
        for group in self.buckets:
            for bucket in group:
                bucket.unpack_gradients()

    def close(self, failed: bool = False) -> None:
        if self._by_torch and not failed:
            self._by_torch.close()
        super().close(failed)
