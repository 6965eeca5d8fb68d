"""Times the phases of training on several ranks, and the traffic between them; ``bpt time --solver`` with mpirun."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import torch

from bpt.base.errors import PrototxtError
from bpt.base.log import columns, log_lines
from bpt.config.plan.run_plan import RunPlan
from bpt.config.proto import bpt_pb2 as pb
from bpt.engine import instructions as do
from bpt.engine.instructions import InstructionBase, InstructionStep
from bpt.graph.layer_graph import LayerGraph
from bpt.graph.segments import Segment
from bpt.graph.transfers import Transfer
from bpt.perf.timing.cgdp_times import log_cgdp_times, time_cgdp, time_original
from bpt.perf.timing.inner_times import log_inner_times
from bpt.system.comm.base import Communicator
from bpt.system.events.event import Activity
from bpt.system.events.totals import PHASES, Key, LinkTotals, Totals, Traffic, busy_seconds, phase_seconds, traffic_of
from bpt.train.runtime.binding import bind
from bpt.train.runtime.runtime import Runtime
from bpt.train.runtime.train_options import TrainOptions

LOG = logging.getLogger("bpt")

WARM_UP = 3  # iterations that are not timed
# The order of instructions in tables of traffic, by their kind and by whether they transfer diffs.
ORDER: list[tuple[type[InstructionBase], bool]] = [
    *((kind, False) for kind in (do.Broadcast, do.LoadBatch, do.Send, do.Recv)),
    *((kind, True) for kind in (do.Send, do.Recv)),
    *((do.ExchangePiece, diff) for diff in (False, True)),
    *((kind, False) for kind in (do.Forward, do.Backward, do.BackwardInputs, do.BackwardWeights)),
    *((kind, False) for kind in (do.ExchangeGradients, do.Wait, do.UpdateWeights, do.Average)),
]


@dataclass(frozen=True)
class RankTimes:
    """The times and the traffic of one rank in all timed iterations.

    Attributes:
        host: its host.
        phases: seconds of each phase.
        total: seconds of all phases.
        traffic: calls, bytes and seconds of its communication.
        waited: seconds of waiting for data.
        links: bytes of messages to single ranks, by receiver.
    """

    host: str
    phases: Mapping[str, float]
    total: float
    traffic: Mapping[Key, Traffic]
    waited: float = 0.0
    links: Mapping[int, int] = field(default_factory=dict)

    @property
    def computing(self) -> float:
        """Seconds of forward, backward and update without communication."""
        return busy_seconds(self.phases, self.traffic)


def time_ranks(plan: RunPlan, device: torch.device, world: Communicator, iterations: int) -> list[RankTimes]:
    """Train as the solver says, and log phases by rank and traffic by message; a collective call.

    With ``exchange: CGDP`` it logs the cost model, predicted and measured, and OrigDP. With an inner layer, it logs the
    tasks of the first rank. It runs no tests, and writes only the choice of chunks if the solver asks for it.

    Raises:
        PrototxtError: the ranks of this solver do not train synchronously.
    """
    if plan.is_outer:
        exchange = pb.ParallelParameter.Exchange.Name(plan.parallel_param.exchange)
        raise PrototxtError(
            f"parallel_param: exchange: {exchange} lets each worker train "
            "by itself: run bpt time without mpirun to time a worker",
            plan.origin("parallel_param", "exchange"),
        )
    with bind(plan.measured(), None, world, TrainOptions(device)) as runtime:
        ranks = time_phases(runtime, iterations)
        cgdp = time_cgdp(runtime, iterations)
        log_inner_times(runtime, iterations)
    if cgdp is not None:
        log_cgdp_times(cgdp, time_original(plan.measured(), cgdp, device, world, iterations))
    return ranks


def time_phases(runtime: Runtime, iterations: int) -> list[RankTimes]:
    """Train ``iterations`` iterations and log their phases by rank, and the traffic by segment; a collective call."""
    runtime.settle()
    runtime.run(WARM_UP)
    world = runtime.parallel.grid.world
    world.Barrier()
    start = time.perf_counter()
    with world.events.into(Totals()) as sink, world.events.into(LinkTotals()) as links:
        runtime.run(iterations)
    total = time.perf_counter() - start
    totals = sink.take()
    waited = totals.get(Key(Activity.WAIT_FOR_DATA), Traffic())
    mine = RankTimes(world.host, phase_seconds(totals), total, traffic_of(totals), waited.seconds, links.sent)
    ranks: list[RankTimes] = world.allgather(mine)
    LOG.info("Training, mean of %d iterations in ms:", iterations)
    log_lines(LOG, phase_table(ranks, iterations))
    LOG.info("Between ranks, by segment of the net, mean of an iteration over all ranks:")
    operator, packed = runtime.nets.train.operator, runtime.exchange.packed()
    own = operator.stage.transfers if operator.stage else ()
    crossing = max(world.allgather(own), key=len)  # those of the longest pipeline
    log_lines(LOG, traffic_table(runtime.net.graph, operator.segments, ranks, iterations, packed, crossing))
    log_lines(LOG, link_table(ranks, iterations))
    return ranks


def phase_table(ranks: Sequence[RankTimes], iterations: int) -> Iterator[str]:
    """Yield a line for each rank: milliseconds of each phase of an iteration (CGDP, Table 2), and of computing."""
    staged = any(times.phases.get("pipeline") for times in ranks)
    names = [name for name in PHASES if name != "pipeline" or staged]
    rows = [("rank", "host", *names, "total", "computing")]
    for rank, times in enumerate(ranks):
        numbers = (*(times.phases[name] for name in names), times.total, times.computing)
        rows.append((str(rank), times.host, *(f"{seconds / iterations * 1e3:.3f}" for seconds in numbers)))
    yield from columns(rows, left=2)
    yield "exchange: the time it adds to an iteration, without the part hidden by backward. computing: without waiting."
    if staged:
        yield "pipeline: waiting for blobs and diffs of other stages."
    if any(times.waited for times in ranks):
        waits = ", ".join(f"{times.waited / iterations * 1e3:.3f}" for times in ranks)
        yield f"Wait for data, in forward, by rank: {waits} ms."


def traffic_table(
    graph: LayerGraph,
    segments: Sequence[Segment],
    ranks: Sequence[RankTimes],
    iterations: int,
    packed: Mapping[str, Mapping[str, int]] | None = None,
    crossing: Sequence[Transfer] = (),
) -> Iterator[str]:
    """Yield a line for each instruction and method that sent messages: layers, calls, bytes, time.

    Args:
        packed: the elements of each parameter in a message, by message; each parameter has a line with its part.
        crossing: the blobs that travel between the stages of a pipeline.
    """
    sums: dict[Key, Traffic] = {}
    for times in ranks:
        for key, traffic in times.traffic.items():
            sums.setdefault(key, Traffic())
            sums[key] += traffic
    rows = [("instruction", "layer/blob", "method", "calls", "kB sent", "ms", "MB/s")]
    of_instructions = [item for item in sums.items() if isinstance(item[0].step, InstructionStep)]
    for (step, message, method), traffic in sorted(of_instructions, key=lambda item: _order(item[0])):
        sent = traffic.sent / iterations
        seconds = traffic.seconds / iterations / len(ranks)
        speed = f"{sent / len(ranks) / seconds / 1e6:.1f}" if sent and seconds else ""
        calls = f"{traffic.calls / iterations / len(ranks):g}"
        assert isinstance(step, InstructionStep)
        what = message or _what(graph, segments, crossing, step)
        rows.append((str(step), what, method, calls, f"{sent / 1e3:.3f}", f"{seconds * 1e3:.3f}", speed))
        elements = (packed or {}).get(message, {})
        for blob, count in elements.items():
            part = count / sum(elements.values())
            rows.append(("", f"  {blob}", "", "", f"{sent * part / 1e3:.3f}", f"{seconds * part * 1e3:.3f}", ""))
    yield from columns(rows, left=3)
    yield "kB sent: by all ranks together. ms: in the call on a rank, including its wait for others."
    if packed:
        yield "Indented: parameters that travel in one message, with their part of its bytes and so of its time."
    yield "F, B: activations of model-parallel layers, sums over the batch. X: gradients. C, A: weights. W: the loss."
    if crossing:
        yield "S, R: blobs that go to another stage, sent and received; s, r: their diffs, on the way back."


def link_table(ranks: Sequence[RankTimes], iterations: int) -> Iterator[str]:
    """Yield a line for each pair of sender and receiver."""
    links = [(source, to, sent) for source, times in enumerate(ranks) for to, sent in sorted(times.links.items())]
    if links:
        yield "Messages from one rank to another, mean of an iteration:"
        rows = [(str(source), str(to), f"{sent / iterations / 1e3:.3f}") for source, to, sent in links]
        yield from columns([("from", "to", "kB"), *rows], left=0)


def _order(key: Key) -> tuple[int, int, str, str]:
    assert isinstance(key.step, InstructionStep)
    kind, number, diff = key.step
    return ORDER.index((kind, diff)), number or 0, key.message, key.method


def _what(graph: LayerGraph, segments: Sequence[Segment], crossing: Sequence[Transfer], step: InstructionStep) -> str:
    """Return the content of the messages in words: a blob with its stages, or the layers of gradients."""
    if step.number is None:
        return "all"
    if step.kind in (do.Send, do.Recv):
        transfer = crossing[step.number]
        return f"{graph.edges[transfer.edges[0]].blob}, {transfer.from_stage} to {transfer.to_stage}"
    return segments[step.number].describe(graph)
