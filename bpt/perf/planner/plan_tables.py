"""The report of ``bpt plan``: a placement, its transfers, the time of an iteration, and GABRA's convergence."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from bpt.base.log import columns
from bpt.graph.autocast import blob_itemsizes
from bpt.graph.layer_graph import LayerGraph
from bpt.parallel.pipeline.pipeline_clock import size_of
from bpt.parallel.pipeline.placement.loads import idle_stages
from bpt.perf.planner.plan_report import PlacementForecast, PlacementPlan, milliseconds

_MIB = 2**20
_TRANSFERS = 24  # transfers with a line; the others are only counted
_GENERATIONS = 8  # generations of GABRA that are shown


def lines(plan: PlacementPlan) -> Iterator[str]:
    """Yield the whole report."""
    graph, problem = plan.graph, plan.problem
    passes = f" x {plan.passes} passes" if plan.passes > 1 else ""
    yield f"{plan.title}; {len(graph)} layers, {graph.num_parameters:,} parameters, batch {plan.batch}{passes}"
    yield f"costs: {f'measured on {plan.measured}' if plan.measured else 'floating-point operations'}"
    yield ""
    yield from _placement(plan)
    yield ""
    yield from _transfers(plan)
    yield ""
    yield from _times(plan)
    if plan.convergence:
        yield ""
        yield from _convergence(plan)
    yield ""
    yield "load: the part of an iteration in which a device computes; bubble: the idle part of all devices' time."
    if problem.link.bandwidth < math.inf or problem.link.latency:
        bandwidth = problem.link.bandwidth
        rate = "without limit" if bandwidth == math.inf else f"{bandwidth * 8 / 1e6:,.5g} Mbit/s"
        yield f"Between any two devices: {rate}, latency {problem.link.latency * 1e3:.4g} ms."
    if not plan.described:
        yield from _assumed(plan)


def _assumed(plan: PlacementPlan) -> Iterator[str]:
    """Yield the assumptions about devices that no file describes."""
    if plan.measured:
        yield "No file describes the devices: each counts as the measured machine, each link as 10 Gbit/s."
        return
    speed = plan.problem.devices[0].speed / 1e9
    yield f"No file describes the devices: each counts as {speed:.4g} GFLOP/s, each link as 10 Gbit/s. So fractions and"
    yield "speed-ups are meaningful, seconds are not; --devices FILE or --measure FILE gives real numbers."


def _placement(plan: PlacementPlan) -> Iterator[str]:
    """Yield a line for each run of layers on a device; the first line has the device's numbers."""
    chosen = plan.chosen
    head = ("stage", "device", "layers", "partitions", "load", "ms", "parameters MiB", "blobs MiB", "of MiB")
    capped = any(device.capacity < math.inf for device in plan.problem.devices)
    rows: list[tuple[str, ...]] = [(*head, "work", "capacity") if capped else head]
    work = _work(plan) if capped else []
    for stage, device in enumerate(plan.problem.devices):
        runs = [segment for segment, own in zip(chosen.segments, chosen.stages, strict=True) if own == stage]
        memory = "" if device.memory == math.inf else f"{device.memory / _MIB:,.6g}"
        numbers: tuple[str, ...] = (
            str(chosen.partitions[stage]), f"{chosen.loads[stage]:.1%}", milliseconds(chosen.busy[stage]),
            _mib(chosen.parameters[stage]), _mib(chosen.activations[stage]), memory,
        )  # fmt: skip
        if capped:
            numbers += (f"{work[stage]:.1%}", "" if device.capacity == math.inf else f"{device.capacity:.1%}")
        for number, run in enumerate(runs):
            cells = (str(stage), device.name) if not number else ("", "")
            own = numbers if not number else ("",) * len(numbers)
            rows.append((*cells, span(plan.graph, run.start, run.end), *own))
    yield from columns(rows, left=3)
    starts = [segment.start for segment in chosen.segments]
    for remark in idle_stages(plan.problem, starts, chosen.stages):
        yield f"Warning: {remark}."


def _work(plan: PlacementPlan) -> list[float]:
    """Return each stage's fraction of the net's work, the left side of Eq. 6."""
    total = plan.problem.work or 1.0
    found = [0.0] * len(plan.problem.devices)
    for segment, stage in zip(plan.chosen.segments, plan.chosen.stages, strict=True):
        found[stage] += math.fsum(cost.work for cost in plan.problem.costs[segment.start : segment.end]) / total
    return found


def _transfers(plan: PlacementPlan) -> Iterator[str]:
    """Yield a line for each blob that travels, and their sum."""
    chosen = plan.chosen
    if not chosen.transfers:
        yield "Nothing travels between devices."
        return
    rows = [("transfer", "from", "to", "kB", "diff kB")]
    total = 0.0
    itemsizes = blob_itemsizes(plan.graph, plan.precision)
    for transfer in chosen.transfers:
        size = size_of(transfer, itemsizes) / 1e3
        total += size * (1 + transfer.diff)
        blob = plan.graph.edges[transfer.edges[0]].blob
        back = f"{size:,.5g}" if transfer.diff else ""
        rows.append((blob, str(transfer.from_stage), str(transfer.to_stage), f"{size:,.5g}", back))
    more = len(rows) - 1 - _TRANSFERS
    yield from columns(rows[: _TRANSFERS + 1], left=1)
    if more > 0:
        yield f"... and {more} more"
    number, micros = len(chosen.transfers), plan.problem.micro_batches
    parts = f", each in {micros} parts" if micros > 1 else ""
    yield f"{number} blob{'s' * (number != 1)}, {total:,.5g} kB a pass{parts}."


def _times(plan: PlacementPlan) -> Iterator[str]:
    """Yield a line for the placement, the even split and one device alone."""
    alone, samples = plan.alone, plan.batch * plan.passes
    fastest = plan.problem.devices[alone.device].name

    def row(name: str, seconds: float, bubble: float) -> tuple[str, ...]:
        rate = f"{samples / seconds:,.5g}" if seconds else ""
        return name, milliseconds(seconds), rate, f"{bubble:.1%}", f"{alone.seconds / seconds:.3f}" if seconds else ""

    devices = zip(plan.problem.devices, plan.even.memory, strict=True)
    small = [device.name for device, memory in devices if memory > device.memory]
    rows = [
        ("predicted", "iteration ms", "samples/s", "bubble", "speed-up"),
        row("this placement", plan.chosen.seconds, plan.chosen.bubble),
        *([row("BLOCK", plan.block.seconds, plan.block.bubble)] if plan.block else []),
        row(f"even split{_too_small(small)}", plan.even.seconds, plan.even.bubble),
        row(f"alone: {fastest}{_too_small([] if alone.fits else [fastest])}", alone.seconds, 0.0),
    ]
    yield from columns(rows, left=1)
    if len(plan.problem.devices) > 1:
        yield f"The even split treats devices as equal; its stages begin at {starts_of(plan.graph, plan.even)}."
        yield from _better_alone(plan)


def _better_alone(plan: PlacementPlan) -> Iterator[str]:
    """Yield alternatives if a pipeline is slower than one device alone."""
    seconds = min(each.seconds for each in (plan.chosen, plan.even, plan.block) if each)
    if not plan.alone.fits or plan.alone.seconds >= seconds:
        return
    name = plan.problem.devices[plan.alone.device].name
    yield f"{name} alone is faster than a pipeline of these devices: train on it with one process, without num_stages."
    tries = ["larger batches", "bpt plan --auto, which also tries data parallelism"]
    if plan.schedule != "DELAYED":
        tries.insert(0, "schedule: DELAYED, which has no bubble but delays gradients")
        if plan.problem.micro_batches < plan.batch:
            tries.insert(0, f"micro_batches above {plan.problem.micro_batches}, for a smaller bubble")
    yield f"Or try {'; '.join(tries)}."


def _convergence(plan: PlacementPlan) -> Iterator[str]:
    """Yield the best objective of the first generation, of some between, and of the last."""
    rows = [("GABRA: generation", plan.objective)]
    rows += [(str(generation), f"{value:.6g}") for generation, value in milestones(plan.convergence)]
    yield from columns(rows, left=0)


def milestones(convergence: Sequence[tuple[int, float]]) -> list[tuple[int, float]]:
    """Return the first and the last point, and points between them at about equal steps of the logarithm."""
    last = len(convergence) - 1
    wanted = {0, last} | {round(last ** (step / (_GENERATIONS - 2))) for step in range(_GENERATIONS - 1) if last > 0}
    return [convergence[index] for index in sorted(wanted)]


def span(graph: LayerGraph, start: int, end: int) -> str:
    """Return the names of layers ``[start, end)``, such as ``conv1 … pool2``."""
    first, last = graph.nodes[start].name, graph.nodes[end - 1].name
    return first if end == start + 1 else f"{first} … {last}"


def starts_of(graph: LayerGraph, forecast: PlacementForecast) -> str:
    """Return the first layers of all runs except the first one, such as ``conv2, ip1``."""
    return ", ".join(graph.nodes[segment.start].name for segment in forecast.segments[1:])


def _too_small(devices: Sequence[str]) -> str:
    return f" (too little memory: {', '.join(devices)})" if devices else ""


def _mib(size: float) -> str:
    return f"{size / _MIB:,.4g}"
