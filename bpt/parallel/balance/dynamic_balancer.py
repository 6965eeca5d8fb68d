"""``balance: DYNAMIC`` in a run: ranks measure their times and agree on the shares of the next batches."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch

from bpt.graph.autocast import blob_itemsizes
from bpt.graph.layer_spec import count
from bpt.nn.layers.base import batch_of
from bpt.nn.net import Net
from bpt.parallel.balance.divided_net import Division
from bpt.parallel.balance.dynamic import Dynamic, longest
from bpt.parallel.balance.iteration_time import exchange_seconds, ready_seconds
from bpt.parallel.balance.shared_batch import SharedBatch
from bpt.parallel.balance.speed import MARGIN, MOST
from bpt.system.device.memory_use import Memory
from bpt.system.events.totals import Key, Totals, Traffic, total_busy_seconds

LOG = logging.getLogger("bpt")

WARM_UP = 1  # iterations after a change that do not count: memory and kernels are prepared, data are read anew
INTERVAL = 4  # iterations after which ranks exchange their times
SECONDS = 0.4  # of measurements at least: a quota that stops a process ten times a second is averaged in
LONGEST = 3 * INTERVAL  # iterations that are enough in any case
PER_BLOB = 3  # bytes of memory for each byte of a sample's blobs: these, their diffs, what kernels need
SHOWN = 8  # ranks in a log line


class DynamicLoadBalancer:
    """Adapts the shares of a batch to the times that the ranks take.

    Args:
        parallel: the shares of this rank.
        nets: the nets by name; "train" is the one that is timed.
        division: how the ranks divide it.
        device: where this rank computes.
        segments: returns the number of segments of "train", if shares make the iteration short (``by: ITERATION``).
        passes: the passes of an iteration.
    """

    name = "shares"  # in a TrainState

    def __init__(
        self,
        parallel: SharedBatch,
        nets: Mapping[str, Net],
        division: Division,
        device: torch.device,
        segments: Callable[[], int] | None = None,
        passes: int = 1,
    ) -> None:
        self._parallel = parallel
        self._nets = nets
        self._share_ranks = division.share_ranks
        self._batch = batch_of(nets["train"].graph)
        self._world = world = parallel.grid.world
        hosts = world.allgather(world.host)
        self._memory = Memory(device, 1 if device.type == "cuda" else hosts.count(world.host))
        self._per_sample = PER_BLOB * _blob_bytes(nets["train"]) / max(self._batch, 1)
        self._num_segments, self._passes = segments, passes
        self._totals = Totals()
        self._begun = 0.0
        self._seen: dict[Key, Traffic] = {}
        self._iterations = -WARM_UP

    @property
    def _balance(self) -> Dynamic:
        assert isinstance(self._parallel.balance, Dynamic)
        return self._parallel.balance

    def state(self) -> tuple[int, ...]:
        """Return the samples of each share of a batch."""
        return tuple(share.count for share in self._parallel.shares(self._batch))

    def load(self, counts: Sequence[int]) -> None:
        """Take over the shares of the run that this one continues, if as many ranks divide an equally large batch."""
        if len(counts) == len(self.state()) and sum(counts) == sum(self.state()):
            self._balance.use_shares(counts)
            self._parallel.reshare(self._nets.values())

    def end(self, iteration: int) -> None:
        """Note that the iteration before ``iteration`` has ended; a collective call every few iterations."""
        self._iterations += 1
        if self._iterations == 0:
            self._totals = self._world.events.add(Totals())
            self._begun, self._seen = time.perf_counter(), {}
        elif self._iterations > 0 and self._iterations % INTERVAL == 0:
            self._agree(iteration)

    def close(self) -> None:
        """Stop measuring."""
        self._world.events.remove(self._totals)

    def forget(self) -> None:
        """Drop the times seen so far, which do not show how training continues."""
        self._world.events.remove(self._totals)
        self._iterations = -WARM_UP

    def _agree(self, iteration: int) -> None:
        """Exchange the times of all ranks, so that all compute the same shares."""
        for key, total in self._totals.take().items():
            self._seen.setdefault(key, Traffic())
            self._seen[key] += total
        parts = self._parts()
        facts = np.zeros((self._world.size, 3 + len(parts)))
        own = total_busy_seconds(self._seen), time.perf_counter() - self._begun, self._room(), *parts
        facts[self._world.rank] = own
        self._world.Allreduce(facts)
        computing, elapsed, room = facts.T[:3]
        if elapsed.max() < SECONDS and self._iterations < LONGEST:
            return
        seconds = [computing[ranks].max() / self._iterations for ranks in self._share_ranks]
        before = self.state()
        # A share that does not fit into the memory of a stage or a shard would end the run.
        caps = [int(own + room[ranks].min()) for own, ranks in zip(before, self._share_ranks, strict=True)]
        of_iteration = facts[:, 3:] / self._iterations
        self._iterations = 0
        self._begun, self._seen = time.perf_counter(), {}
        if min(time for time, own in zip(seconds, before, strict=True) if own) <= 0:
            return
        ready: list[list[float]] = []
        exchanges: list[float] = []
        if parts:
            segments = (len(parts) - 2) // 2
            exchanges = of_iteration[:, :segments].min(axis=0).tolist()
            ready = of_iteration[[ranks[0] for ranks in self._share_ranks], segments:].tolist()
        if self._balance.follow(sum(before), seconds, caps, ready, exchanges):
            self.forget()
            self._parallel.reshare(self._nets.values())
            self._log_change(iteration, before, seconds)

    def _parts(self) -> list[float]:
        """Return the seconds of this rank's exchanges, until its gradients are ready, and of its update."""
        if self._num_segments is None:
            return []
        segments = self._num_segments()
        ready, update = ready_seconds(self._seen, segments, self._passes)
        return [*exchange_seconds(self._seen, segments), *ready, update]

    def _room(self) -> int:
        """Return how many more samples this rank has memory for."""
        return min(int(MARGIN * self._memory.room / self._per_sample), MOST) if self._per_sample else MOST

    def _log_change(self, iteration: int, before: Sequence[int], seconds: Sequence[float]) -> None:
        after = self.state()
        cells = [f"{own} → {new}" for own, new in zip(before, after, strict=True)]
        more = f" and {len(cells) - SHOWN} more" if len(cells) > SHOWN else ""
        expected = longest(self._balance.functions, after)
        LOG.info(
            "Balance: from iteration %d on samples are divided anew: %s%s. The slowest took %.4g ms for its share, "
            "%.4g ms are expected", iteration, ", ".join(cells[:SHOWN]), more, max(seconds) * 1e3, expected * 1e3,
        )  # fmt: skip


def _blob_bytes(net: Net) -> int:
    """Return the bytes of the blobs that this rank's layers make of a whole batch."""
    graph, itemsizes = net.graph, blob_itemsizes(net.graph, net.context.precision)
    own = (edge for edge in graph.edges if net.part.runs(edge.producer))
    return sum(count(edge.shape) * itemsizes[edge.index] for edge in own)
