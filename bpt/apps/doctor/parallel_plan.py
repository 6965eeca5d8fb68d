"""Check the division of the run over the ranks by ``parallel_param``, and show the part of each rank."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch

from bpt.apps.doctor.codec_advice import codec_advice
from bpt.apps.doctor.findings import Finding, Ranks, Section, attempt, bytes_text, note, ok, problem, spans, warning
from bpt.apps.doctor.texts import build_graphs, errors_of
from bpt.apps.doctor.wraparound_check import check_tests
from bpt.config.plan.nets import NetPlan
from bpt.config.plan.run_plan import RunPlan
from bpt.config.proto import bpt_pb2 as pb
from bpt.config.proto.blobs import STORED
from bpt.engine.optim.rules import num_moments
from bpt.graph.layer_graph import LayerGraph
from bpt.graph.layer_spec import count
from bpt.graph.part import Part
from bpt.graph.share import Share
from bpt.nn.layers import LAYERS
from bpt.nn.layers.base import batch_of
from bpt.parallel.balance.divisible_batches import is_dividable
from bpt.parallel.pipeline.stage_placement import described
from bpt.perf.speeds.ping_pong import MeasuredLinks
from bpt.system.device.memory_use import Memory
from bpt.train.runtime.parallel import Parallel
from bpt.train.runtime.parallel_setup import setup_parallelism
from bpt.train.runtime.train_options import TrainOptions


@dataclass(frozen=True)
class CheckedPlan:
    """The result of checking a plan.

    Attributes:
        section: the findings.
        wrong: the error that keeps all ranks from making the nets; ``None`` if there is none, or files are missing.
        snapshot: the bytes of a snapshot; ``None``: unknown.
    """

    section: Section
    wrong: Exception | None = None
    snapshot: int | None = None


def check_plan(
    ranks: Ranks,
    plan: RunPlan,
    plans: Mapping[str, NetPlan],
    device: torch.device,
    known: Sequence[str],
    measured: MeasuredLinks,
) -> CheckedPlan:
    """Build the graphs of the nets and divide them; a collective call, with the same texts on all ranks.

    Args:
        ranks: all ranks.
        plan: the plan of the run.
        plans: the plans of the nets by name.
        device: the device of this rank.
        known: errors of this rank that are reported already; a net that fails because of one is not reported again.
        measured: the measured speeds of messages.
    """
    world = ranks.world
    built = build_graphs(ranks, plan, plans, known)
    if built.findings:
        return CheckedPlan(_section(built.findings), built.wrong)
    graphs = built.by_name
    training = next(iter(graphs.values()))
    placed = attempt(lambda: _set_up(ranks, plan, graphs, device))
    messages = world.allgather(placed.message)
    if any(messages):
        return CheckedPlan(_section(list(errors_of(ranks, messages))))
    assert placed.value is not None
    parallel, part = placed.value
    found = [
        *_open(plan, world.size),
        *_shares(graphs, parallel),
        *_statistics(training, parallel),
        *_memory(ranks, plan, training, part, device),
        *_exchange(ranks, plan, training, part, measured, parallel),
        *check_tests(ranks, plan, graphs),
    ]
    copies = 1 + plan.snapshot_diff + num_moments(plan.optim)
    return CheckedPlan(_section(found), snapshot=training.num_parameters * STORED * copies)


def _open(plan: RunPlan, ranks: int) -> Iterator[Finding]:
    """Yield a note if training will choose another plan."""
    if plan.parallel_param.auto and ranks > 1:
        yield note(
            "auto: true: training measures the ranks and chooses the fastest plan; this is the solver's own plan",
            "bpt plan --auto forecasts the choice",
        )


def _section(findings: Sequence[Finding]) -> Section:
    return Section("Plan", tuple(findings))


def _set_up(
    ranks: Ranks, plan: RunPlan, graphs: Mapping[str, LayerGraph], device: torch.device
) -> tuple[Parallel, Part]:
    """Return the parallelisation, and this rank's part of the training net."""
    train, *tests = graphs.values()
    with setup_parallelism(plan, train, ranks.world, tests, TrainOptions(device)) as parallel:
        parts = [parallel.parts(graph)[parallel.grid.in_replica.rank] for graph in graphs.values()]
    return parallel, parts[0]


def _shares(graphs: Mapping[str, LayerGraph], parallel: Parallel) -> Iterator[Finding]:
    """Yield the samples that each rank gets of each net's batch; a collective call."""
    owners = parallel.batches.ranks_with_samples
    yield ok(parallel.described)
    if parallel.staging:
        yield from map(ok, described(parallel.staging))
    for name, graph in graphs.items():
        batch = attempt(lambda graph=graph: batch_of(graph))  # type: ignore[misc]
        if batch.value is None:
            continue  # a net without data
        whole_batches = not is_dividable(graph)
        if graph.phase == pb.TEST and whole_batches:
            yield ok(f"{name}: a batch of {batch.value} samples, which cannot be divided: each rank runs all of it")
            continue
        shares = parallel.batches.shares(batch.value, graph.phase)
        whole = sum(share.count for share in shares)
        idle = [rank for rank, share in zip(owners, shares, strict=True) if not share.count]
        if idle:
            who = f"rank{'s' * (len(idle) > 1)} {spans(idle)}"
            yield warning(
                f"{name}: a batch of {whole} samples leaves nothing to do for {who}",
                f"set a batch_size of at least {len(owners)}, or start {len(owners) - len(idle)} ranks",
            )
        else:
            yield _divided(name, shares, parallel, whole_batches)


def _divided(name: str, shares: Sequence[Share], parallel: Parallel, whole_batches: bool) -> Finding:
    counts = [share.count for share in shares]
    text = f"{name}: a batch of {sum(counts)} samples"
    if len(counts) == 1:
        return ok(text)
    units = "pipelines" if parallel.staging else "ranks"
    if len(set(counts)) == 1:
        kept = "; batches of this net cannot be divided" if whole_batches else ""
        return ok(f"{text}, {counts[0]} for each of {len(counts)} {units}{kept}")
    text += f", {min(counts)} to {max(counts)} for each of {len(counts)} {units}"
    if parallel.param.balance != pb.ParallelParameter.UNIFORM:
        return ok(text)
    return note(f"{text}: those with {min(counts)} wait for the others", f"a multiple of {len(counts)} divides evenly")


def _statistics(graph: LayerGraph, parallel: Parallel) -> Iterator[Finding]:
    """Yield a note if a BatchNorm layer sees less of a batch than on one process."""
    micro_batches = parallel.staging.micro_batches if parallel.staging else 1
    if parallel.batches.number == micro_batches == 1:
        return
    layers = ((node, LAYERS[node.type]) for node in graph.nodes)
    by_itself = [
        f'{node.type} "{node.name}"'
        for node, layer in layers
        if layer.normalises_by_batch(node.spec) and not layer.syncs(node.spec, parallel.param.sync_batch_norm)
    ]
    if not by_itself:
        return
    which = by_itself[0] + (f" and {len(by_itself) - 1} more" if len(by_itself) > 1 else "")
    if micro_batches > 1:
        yield note(
            f"{which}: each of {micro_batches} micro-batches is normalised by itself, as a pass of iter_size "
            "is in Caffe, so the curve differs slightly from that of whole batches",
            "pipeline_param { micro_batches: 1 } normalises by the whole batch, but stages do not overlap then",
        )
    else:
        yield note(
            f"{which}: each rank normalises by its own samples, as in Caffe, so the curve differs slightly from that "
            "of one process",
            "parallel_param { sync_batch_norm: true } normalises by the whole batch, and costs messages",
        )


def _memory(ranks: Ranks, plan: RunPlan, graph: LayerGraph, part: Part, device: torch.device) -> Iterator[Finding]:
    """Yield whether each rank has memory for its parameters; a collective call."""
    history = num_moments(plan.optim) / (ranks.world.size if plan.parallel_param.divides_update else 1)
    copies = 2 + history  # values, gradients, history
    ranks_on_device = 1 if device.type == "cuda" else len(ranks.by_host[ranks.hosts[ranks.world.rank]])
    mine = (
        int(_num_parameters(graph, part) * plan.precision.master.itemsize * copies),
        Memory(device, ranks_on_device).room,
    )
    needs = ranks.world.allgather(mine)
    short = [rank for rank, (need, room) in enumerate(needs) if need > room]
    if short:
        need, room = needs[short[0]]
        yield problem(
            f"{ranks.named(short)}: parameters, gradients and history take {bytes_text(need)} for each rank, of "
            f"{bytes_text(room)} that are free for it",
            "start fewer ranks on a host, or split fully connected layers: parallel_param { num_shards: 2 }, or cut "
            "the net into stages: parallel_param { num_stages: 2 }",
        )
    else:
        most = max(need for need, _ in needs)
        yield ok(f"parameters, gradients and history take {bytes_text(most)} on a rank; blobs need further memory")


def _exchange(
    ranks: Ranks, plan: RunPlan, graph: LayerGraph, part: Part, measured: MeasuredLinks, parallel: Parallel
) -> Iterator[Finding]:
    """Yield the messages of an iteration; a collective call."""
    nbytes = max(ranks.world.allgather(_num_parameters(graph, part))) * plan.precision.wire.itemsize
    if (parallel.batches.number > 1 or parallel.grid.shards > 1) and nbytes:
        took = f"about {measured.allreduce * nbytes * 1e3:.2g} ms by the Allreduce above"
        local = plan.parallel_param.local_param
        if plan.parallel_param.exchange == pb.ParallelParameter.LOCAL:
            yield ok(
                f"every {local.steps} iterations average {bytes_text(nbytes)} of weights over the replicas: {took}"
            )
            return
        hidden = ", of which computing hides a part"
        yield ok(f"each iteration sums {bytes_text(nbytes)} of gradients over the ranks: {took}{hidden}")
        yield from codec_advice(plan.parallel_param.compression_param, nbytes, ranks.hosts, measured.links)


def _num_parameters(graph: LayerGraph, part: Part) -> int:
    """Return the number of parameters that a rank holds."""
    return sum(count(part.shape_of(param)) for param in graph.learnable if part.holds(param))
