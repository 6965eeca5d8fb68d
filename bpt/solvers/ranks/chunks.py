"""Which layers' gradients travel together under ``exchange: CGDP``: fixed, searched while training starts, or kept."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from bpt.exchange import Exchange
from bpt.graph.segments import trained_layers
from bpt.operators.local import LocalOperator
from bpt.proto import bpt_pb2 as pb
from bpt.schedule.chunk_search import ChunkSearch, Search
from bpt.schedule.chunks import chunks, describe
from bpt.solvers.ranks.parallel import Parallel

LOG = logging.getLogger("bpt")


class Chunks:
    """The chunks of a training net, and the search for the best ones (CGDP, §4.2 and Fig. 4).

    Every trial is made of iterations of training like any other; nothing is computed twice. All ranks try the same,
    and the time of the slowest counts. A rank that is alone has nothing to exchange, so nothing is cut or searched.

    Args:
        parallel: the ranks and their ``cgdp_param``.
        operator: runs the training net; cut anew when chunks change.
        exchange: sums its gradients; grouped anew when chunks change.
        fixed: the cut must stay as it is.

    Attributes:
        lengths: numbers of trained layers of the chunks in use, from the top down; empty if the exchange has none.
        search: what tries chunks; ``None`` if nothing is to be tried.
    """

    def __init__(self, parallel: Parallel, operator: LocalOperator, exchange: Exchange, fixed: bool = False) -> None:
        self._parallel = parallel
        self._operator = operator
        self._exchange = exchange
        self._world = parallel.grid.world
        self.lengths: tuple[int, ...] = ()
        self.search: Search | None = None
        param = parallel.param.cgdp_param
        self._interval = param.interval
        if parallel.param.exchange != pb.ParallelParameter.CGDP or parallel.is_alone or fixed:
            return
        layers = len(trained_layers(operator.net.graph))
        if param.chunk_size:
            self.use(chunks(layers, param.chunk_size))
        elif layers:
            self.search = ChunkSearch(layers, param.step, param.range, param.interval)
            self.use(self.search.lengths)
            LOG.info("Chunks: searching, %d iterations each; %d layers have weights", param.interval, layers)

    @property
    def settled(self) -> bool:
        """Whether the chunks in use are to stay."""
        return self.search is None or self.search.settled

    def use(self, lengths: Sequence[int]) -> None:
        """Go on with chunks of so many trained layers, from the top down; all ranks alike, between iterations."""
        if tuple(lengths) == self.lengths:
            return
        self.lengths = tuple(lengths)
        net = self._operator.net
        segments = self._parallel.segments(net.graph, overlap=True, chunks=self.lengths)
        self._operator.cut_into(segments)
        self._exchange.regroup(self._parallel.groups(net, segments))

    def record(self, seconds: float) -> bool:
        """Note how long this rank's iteration took; whether this settled the search. A collective call until then."""
        assert self.search is not None and not self.search.settled
        if not self.search.record(max(self._world.allgather(seconds))):
            return False
        trial = self.search.trials[-1]
        LOG.info("Chunks: %s: %.2f ms an iteration", trial, trial.seconds / self._interval * 1e3)
        self.use(self.search.lengths)
        if self.settled:
            LOG.info("Chunks: chosen after %d trials: chunks %s", len(self.search.trials), describe(self.lengths))
        return self.settled

