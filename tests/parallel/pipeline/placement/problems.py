"""Problems by hand and at random, and a plain reckoning of what a placement costs, layer by layer."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from bpt.config.proto import bpt_pb2 as pb
from bpt.parallel.pipeline.placement.problem import Cost, Crossing, Device, DeviceLink, Placement, Problem

Param = pb.PipelineParameter


def chain(work: Sequence[float], devices: Sequence[Device], **more: object) -> Problem:
    """Layers one behind the other, with so much work each; each hands 8 bytes to the next."""
    costs = tuple(Cost(f"l{i}", w / 4, 3 * w / 4, 12, 8) for i, w in enumerate(work))
    crossings = tuple(Crossing(i, (i + 1,), 8.0) for i in range(len(work) - 1))
    return Problem(costs, crossings, tuple(devices), **more)  # type: ignore[arg-type]


def uneven(rule: int, bandwidth: float, memory: tuple[float, float] = (math.inf, math.inf)) -> Problem:
    """Four layers of 10 s and 100 bytes and one of 0 s and 1 byte; blobs of 1 byte, but for one of 2 in the middle."""
    costs = (*(Cost(f"l{i}", 2.5, 7.5, 100) for i in range(4)), Cost("loss", 0, 0, 1))
    crossings = tuple(Crossing(i, (i + 1,), 2.0 if i == 1 else 1.0) for i in range(4))
    devices = (Device("a", 1, memory[0]), Device("b", 1, memory[1]))
    return Problem(costs, crossings, devices, DeviceLink(0, bandwidth), rule=rule)


def stages_of(placement: Placement, layers: int) -> list[int]:
    """The stage of each layer."""
    ends = [*placement.starts[1:], layers]
    return [s for a, b, s in zip(placement.starts, ends, placement.stages, strict=True) for _ in range(a, b)]


def working(problem: Problem, stages: Sequence[int]) -> list[float]:
    """Seconds in which each device computes, from the stage of each layer."""
    total = [0.0] * len(problem.devices)
    last = max(index for index in range(len(stages)) if not index or stages[index] != stages[index - 1])
    for index, (cost, stage) in enumerate(zip(problem.costs, running(problem, stages), strict=True)):
        again = problem.recomputes and (index < last or problem.rule == Param.GPIPE)
        total[stage] += (cost.forward * (1 + again) + cost.backward) / problem.devices[stage].speed
    return total


def received(problem: Problem, stages: Sequence[int]) -> list[float]:
    """Seconds in which blobs travel to each device, and their diffs back."""
    total = [0.0] * len(problem.devices)
    run_on = running(problem, stages)
    for crossing in problem.crossings:
        for reader in {run_on[layer] for layer in crossing.readers} - {run_on[crossing.producer]}:
            one_way = problem.micro_batches * problem.link.latency + crossing.bytes / problem.link.bandwidth
            total[reader] += one_way * (2 if crossing.diff else 1)
    return total


def running(problem: Problem, stages: Sequence[int]) -> list[int]:
    """Where each layer runs."""
    return [0 if layer in problem.sources else stage for layer, stage in enumerate(stages)]


def step_time(problem: Problem, stages: Sequence[int]) -> float:
    """STEP_TIME: what does not overlap, and the slowest device or link for the rest."""
    parts: dict[int, float] = {
        Param.SEQUENTIAL: 1.0, Param.DELAYED: 0.0, Param.ZERO_BUBBLE: 1 / problem.micro_batches / 3
    }  # fmt: skip
    part = parts.get(problem.rule, 1 / problem.micro_batches)
    places = working(problem, stages) + received(problem, stages)
    return (1 - part) * max(places) + part * sum(places)


def memory(problem: Problem, stages: Sequence[int]) -> list[float]:
    """Bytes of each device."""
    total = [0.0] * len(problem.devices)
    alive = _alive(problem, stages)
    for layer, cost in enumerate(problem.costs):
        if layer in problem.sources:
            total[0] += cost.parameters + cost.activations
        else:
            once = problem.recomputes and problem.rule != Param.ZERO_BUBBLE
            held = 1 / problem.micro_batches if once else alive[layer]
            total[stages[layer]] += cost.parameters + held * cost.activations
            if problem.rule == Param.DELAYED:
                total[stages[layer]] += (alive[layer] - 1) * cost.trained
    if problem.adds:
        computed = set(range(len(stages))) - set(problem.sources)
        for device in range(len(total)):
            total[device] += max((problem.costs[i].largest for i in computed if stages[i] == device), default=0)
    for crossing in problem.crossings:
        maker = 0 if crossing.producer in problem.sources else stages[crossing.producer]
        for reader in {stages[layer] for layer in crossing.readers} - {maker}:
            first = min(layer for layer in crossing.readers if stages[layer] == reader)
            total[reader] += alive[first] * crossing.bytes
    return total


def _alive(problem: Problem, stages: Sequence[int]) -> list[float]:
    """How much of a batch's activations each layer keeps at once."""
    blocks = [0]
    for before, stage in pairwise(stages):
        blocks.append(blocks[-1] + (before != stage))
    in_flight = [blocks[-1] - block + 1 for block in blocks]
    if problem.rule == Param.ONE_F_ONE_B:
        return [min(1.0, count / problem.micro_batches) for count in in_flight]
    if problem.rule == Param.DELAYED:
        return [float(count) for count in in_flight]
    if problem.rule == Param.ZERO_BUBBLE:
        return [min(1.0, in_flight[0] / problem.micro_batches)] * len(stages)
    return [1 / problem.micro_batches if problem.rule == Param.SEQUENTIAL else 1.0] * len(stages)


def fills(problem: Problem, stages: Sequence[int]) -> list[float]:
    """The share of each device's memory that is taken; bytes where any memory is without limit."""
    needs = memory(problem, stages)
    if any(device.memory == math.inf for device in problem.devices):
        return needs
    return [need / device.memory for need, device in zip(needs, problem.devices, strict=True)]


def fits(problem: Problem, stages: Sequence[int]) -> bool:
    """Whether each device has the memory, and no more of the work than its capacity (Eq. 6)."""
    work = sum(cost.forward + cost.backward for cost in problem.costs)
    return all(
        need <= device.memory * (1 + 1e-9) and seconds * device.speed <= device.capacity * work * (1 + 1e-9)
        for need, seconds, device in zip(
            memory(problem, stages), working(problem, stages), problem.devices, strict=True
        )
    )


def capped(problem: Problem, seed: int) -> Problem:
    """The same on devices, most of which may get a part of the work only."""
    rng, equal = random.Random(seed), 1 / len(problem.devices)
    shares = [math.inf if rng.random() < 0.2 else rng.uniform(0.8, 2) * equal for _ in problem.devices]
    devices = zip(problem.devices, shares, strict=True)
    return replace(problem, devices=tuple(replace(device, capacity=share) for device, share in devices))


def random_problem(
    seed: int, layers: int, devices: int, tight: bool = False, rule: int = Param.GPIPE, sources: bool = True
) -> Problem:
    """A net with skip connections on unlike devices. ``tight``: memory is scarce, often too scarce."""
    rng = random.Random(seed)
    fed = sources and rng.random() < 0.5
    costs = []
    for i in range(layers):
        forward = 0.0 if fed and not i else rng.lognormvariate(0, 1)
        parameters, activations = rng.randrange(50), rng.randrange(99)
        costs.append(Cost(f"l{i}", forward, 2 * forward, parameters, activations, parameters // 3, parameters // 5))
    crossings = []
    for i in range(layers - 1):
        further = rng.sample(range(i + 1, layers), min(rng.choice((0, 0, 1, 3)), layers - 1 - i))
        crossings.append(Crossing(i, tuple(sorted({i + 1, *further})), float(rng.randrange(1, 40)), bool(i) or not fed))
    share = sum(cost.parameters + cost.activations for cost in costs) / devices
    link = DeviceLink(rng.choice((0.0, 0.01)), rng.choice((math.inf, 300.0, 40.0, 10.0)))
    return Problem(
        tuple(costs),
        tuple(crossings),
        tuple(
            Device(f"d{j}", rng.uniform(0.5, 2), rng.uniform(0.8, 2.2) * share if tight else math.inf)
            for j in range(devices)
        ),
        link,
        rule=rule,
        micro_batches=rng.choice((1, 2, 4, 16)),
        sources=(0,) if fed else (),
        beside_sources=((0, 2),) if fed else (),
        adds=seed % 3 > 0,
    )
