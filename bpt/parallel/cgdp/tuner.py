"""The chunks of ``exchange: CGDP`` in a run: fixed, searched while training starts, or read from a file."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from bpt.config.plan.run_plan import RunPlan
from bpt.config.proto import bpt_pb2 as pb
from bpt.config.proto.sources import resolve_path
from bpt.engine.operator import Operator
from bpt.graph.segments import trained_layers
from bpt.parallel.cgdp.calibration import Calibration, IterationKind, kinds_of, layers_of_all, places_of
from bpt.parallel.cgdp.chunks import CandidateSearch, ChunkSearch, CutSearch, chunks, describe
from bpt.parallel.cgdp.cut_net import CutNet
from bpt.parallel.exchange import Exchange
from bpt.system.device import finish
from bpt.system.events.totals import Totals

if TYPE_CHECKING:
    from bpt.parallel.cgdp.choice_file import ChoiceFile
    from bpt.parallel.cgdp.layer_costs import CalibrationResult

LOG = logging.getLogger("bpt")

CANDIDATES = 4  # cuts that chunking: MODEL tries: its proposal, and what may be better if the model is wrong


class Chunks:
    """The chunks of a training net, and the search for the best ones (CGDP, §4.2 and Fig. 4).

    Every trial is made of iterations of training like any other; nothing is computed twice. All ranks try the same,
    and the time of the slowest counts. A rank that is alone has nothing to exchange, so nothing is cut or searched.

    Args:
        parallel: the ranks and their ``cgdp_param``.
        operator: runs the training net; cut anew when chunks change.
        exchange: sums its gradients; grouped anew when chunks change.
        plan: the run.
        fixed: the cut must stay as it is.

    Attributes:
        lengths: numbers of trained layers of the chunks in use, from the top down; empty if the exchange has none.
        name: in a TrainState.
        search: what tries chunks; ``None`` if nothing is to be tried, or while ``chunking: MODEL`` takes measurements.
        measured: what the last calibration has found; ``None`` before.
    """

    name: ClassVar[str] = "chunks"

    def __init__(
        self,
        parallel: CutNet,
        operator: Operator,
        exchange: Exchange,
        plan: RunPlan,
        fixed: bool = False,
    ) -> None:
        self._parallel = parallel
        self._operator = operator
        self._exchange = exchange
        self._events = parallel.grid.world.events
        self._totals = Totals()
        self._world = parallel.grid.world
        self._passes = plan.optim.iter_size
        self._kind: IterationKind | None = None
        self._timed = False
        self._layers: list[int] = []
        self._calibration: Calibration | None = None
        self._file: ChoiceFile | None = None
        self.search: CutSearch | None = None
        self.measured: CalibrationResult | None = None
        if not exchange.chunked or parallel.is_alone:
            return
        if not fixed:
            self._layers = trained_layers(operator.net.graph)
            if self._layers:
                self._begin(plan)
        elif plan.given("parallel_param", "cgdp_param"):
            LOG.warning("Chunks: debug_info looks at every layer, so each is a chunk; cgdp_param has no effect")

    def _begin(self, plan: RunPlan) -> None:
        param, count = self._parallel.param.cgdp_param, len(self._layers)
        self._interval = param.interval
        if param.chunk_size:
            self.use(chunks(count, param.chunk_size))
            LOG.info("Chunks: of %d layers with weights, from the top down: %s", count, describe(self.lengths))
            return
        if param.choice:
            # Only what this run needs; see docs/architecture.md.
            from bpt.parallel.cgdp.choice_file import ChoiceFile, Setting  # noqa: PLC0415

            graph, grid = self._operator.net.graph, self._parallel.grid
            setting = Setting.of(plan, graph, count, grid, self._operator.device)
            self._file = ChoiceFile(resolve_path(param.choice, plan.path), setting, grid)
            kept = self._file.read()
            if kept is not None:
                LOG.info("Chunks: %s, as kept in %s; delete it to search anew", describe(kept), self._file.path)
                self.use(kept)
                return
        if param.chunking == pb.CgdpParameter.MODEL:
            self.calibrate(rounds=max(1, param.interval // 2))
        else:
            self.search = ChunkSearch(count, param.step, param.range, param.interval)
            self.use(self.search.lengths)
            LOG.info("Chunks: searching, %d iterations each; %d layers have weights", param.interval, count)

    @property
    def lengths(self) -> tuple[int, ...]:
        """The number of trained layers of each chunk, from the top down."""
        return self._kind.lengths if self._kind else ()

    @property
    def settled(self) -> bool:
        """Whether the chunks in use are final."""
        return self._calibration is None and (self.search is None or self.search.settled)

    def state(self) -> tuple[int, ...]:
        """Return the lengths, for a run that continues this one; nothing before they are settled."""
        return self.lengths if self.settled else ()

    def load(self, state: Sequence[int]) -> None:
        """Continue as an earlier run did, by its ``state()``, which is not empty.

        A choice once made stands, and that of a run that trained another number of layers is of no use.
        """
        if self.settled or sum(state) != len(self._layers):
            return
        if self._calibration is not None:
            self._calibration = None
            self._events.remove(self._totals)
        self.search = None
        LOG.info("Chunks: %s, as settled before", describe(state))
        self.use(state)

    def use(self, lengths: Sequence[int]) -> None:
        """Use chunks of so many trained layers, from the top down; all ranks call this between iterations."""
        self._train(IterationKind(tuple(lengths)))

    def calibrate(self, rounds: int, others: Sequence[IterationKind] = ()) -> None:
        """Measure the times of the layers in the next training iterations; ``measured`` then has them.

        Args:
            rounds: how often each kind of iteration is measured.
            others: kinds to be measured besides those that are needed.
        """
        assert self._layers and self.settled
        count = len(self._layers)
        places = places_of(self._parallel, self._operator.net, self._layers)
        kinds = tuple(dict.fromkeys((*kinds_of(count), *others)))
        self._calibration = Calibration(places, kinds, rounds, back=self._kind)
        LOG.info("Chunks: measuring %d layers, %d iterations", count, self._calibration.iterations)
        self._events.add(self._totals)
        self._train(self._calibration.kind)

    def close(self) -> None:
        """Restore the world's events."""
        self._events.remove(self._totals)
        self._events.before_end = None

    def record(self, seconds: float) -> bool:
        """Note how long this rank's iteration took; return whether this settled the chunks. Collective until then."""
        assert not self.settled
        if self._calibration is not None:
            self._record_costs(self._calibration)
        else:
            self._record_trial(seconds)
        return self.settled

    def _record_costs(self, calibration: Calibration) -> None:
        # Only what this run needs; see docs/architecture.md.
        from bpt.parallel.cgdp.cost_model import backward_time, candidates  # noqa: PLC0415
        from bpt.parallel.cgdp.layer_costs import measured  # noqa: PLC0415

        calibration.record(self._totals.take())
        if not calibration.done:
            self._train(calibration.kind)
            return
        self._calibration = None
        self._events.remove(self._totals)
        places, laps = zip(*self._world.allgather((calibration.places, calibration.laps)), strict=True)
        self.measured = measured(layers_of_all(places), laps, self._passes)
        if calibration.back is not None:
            self._train(calibration.back)
            return
        costs = self.measured.costs
        self.search = CandidateSearch(candidates(costs, CANDIDATES), self._interval)
        self.use(self.search.lengths)
        LOG.info(
            "Chunks: the cost model proposes chunks %s: backward and exchange in %.2f ms, %.2f ms with single layers",
            describe(self.lengths),
            backward_time(costs, self.lengths) * 1e3,
            backward_time(costs, (1,) * len(self._layers)) * 1e3,
        )
        self._end_if_settled()

    def _record_trial(self, seconds: float) -> None:
        assert self.search is not None
        if not self.search.record(max(self._world.allgather(seconds))):
            return
        trial = self.search.trials[-1]
        tried = str(trial) if trial.size is None else f"{trial}, that is chunks {describe(trial.lengths)}"
        LOG.info("Chunks: %s: %.2f ms an iteration", tried, trial.seconds / self._interval * 1e3)
        self.use(self.search.lengths)
        self._end_if_settled()

    def _end_if_settled(self) -> None:
        assert self.search is not None
        if self.settled:
            LOG.info("Chunks: chosen after %d trials: chunks %s", len(self.search.trials), describe(self.lengths))
            if self._file is not None:
                self._file.write(self.lengths, self.search.trials)
                LOG.info("Chunks: the choice is kept in %s", self._file.path)

    def _train(self, kind: IterationKind) -> None:
        """Use iterations of a ``kind`` from now on."""
        # To wait for a device in between takes time, so only where nothing overlaps.
        timed = self._calibration is not None and (kind.after_backward or len(kind.lengths) == 1)
        self._events.before_end = partial(finish, self._operator.device) if timed else None
        if (kind, timed) == (self._kind, self._timed):
            return
        net = self._operator.net
        segments = self._parallel.segments(net.graph, overlap=True, chunks=kind.lengths)
        groups = self._parallel.groups(net, segments)
        if kind.after_backward:
            # What belongs to segment 0, the last to run backward, is sent when all is computed.
            groups = [[bucket for group in reversed(groups) for bucket in group], *([] for _ in groups[1:])]
        if kind != self._kind:
            self._operator.cut_into(segments)
        self._exchange.regroup(groups, timed=timed)
        self._kind, self._timed = kind, timed
