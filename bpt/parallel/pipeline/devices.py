"""The devices of the stages of a pipeline, and the link between them, for Problem.

A device is described by the samples of the training net that it trains in a second, alone. Its speed in a Problem is
the work of these samples, in the unit of the costs: operations, or seconds of the machine that measured.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from bpt.base.errors import FileError, PrototxtError
from bpt.graph.layer_graph import LayerGraph
from bpt.nn.layers.base import batch_of
from bpt.parallel.balance.profile import read_profile, work_digest
from bpt.parallel.cluster.cluster import Node
from bpt.parallel.cluster.cluster_file import ClusterSource
from bpt.parallel.cluster.measured_costs import by_layer, error_of_file, file_of, read_costs_of
from bpt.parallel.pipeline.capacities import with_capacities
from bpt.parallel.pipeline.placement.problem import Device, DeviceLink, costs_of

if TYPE_CHECKING:
    from bpt.config.plan.run_plan import RunPlan

TRAINING = 3
"""A training pass, as multiples of a forward pass: backward computes two gradients."""
NOMINAL = 10e9
"""Operations a second of a device of which nothing is known."""
NOMINAL_LINK = DeviceLink(latency=50e-6, bandwidth=1.25e9)
"""A link of which nothing is known: 10 Gbit/s. With it, the better of two equal cuts is the one that sends less."""


def devices_of(plan: RunPlan, graph: LayerGraph, stages: int) -> tuple[tuple[Device, ...], DeviceLink]:
    """Return the devices of ``stages`` stages, in order, and the link between any two of them.

    They are those of the file ``pipeline_param { devices }``: a cluster (ClusterParameter in text format) or a profile
    that ``bpt time --profile`` has written (JSON). Without such a file they are equal: as fast as the machine that
    measured ``pipeline_param { costs }`` or, without costs, of NOMINAL speed, on NOMINAL_LINKs, with unlimited memory.

    A cluster gives name, speed (as ``bpt simulate`` draws it, if there is a spread; at the start, if there are
    changes), memory, capacity and link. The single link is the worst of all: the sum of the two largest latencies, or
    the latency of a link by pair, and the smallest bandwidth. A profile gives the samples a second at the batch size of
    the net. Samples are those of whole iterations, so their work includes a measured update.

    Raises:
        PrototxtError: there is no such file; the cluster is wrong; it has more or fewer nodes than there are stages; or
            the net has no work or no batch; or capacities are wrong, see ``with_capacities``.
        FileError: the profile is damaged, of another net, or has more or fewer ranks than there are stages.
    """
    devices, link = _described(plan, graph, stages)
    return with_capacities(plan, devices), link


def _described(plan: RunPlan, graph: LayerGraph, stages: int) -> tuple[tuple[Device, ...], DeviceLink]:
    costs = read_costs_of(plan, graph)
    measured = None if costs is None else by_layer(costs)
    named = plan.parallel_param.pipeline_param.devices
    if not named:
        speed = 1.0 if measured is not None else NOMINAL
        return tuple(Device(f"device {stage}", speed) for stage in range(stages)), NOMINAL_LINK
    path = file_of(plan, "devices", named)
    work = math.fsum(cost.work for cost in costs_of(graph, plan.precision, measured))
    if not work or not batch_of(graph):
        lack = "operations to count" if not work else "layer that makes batches"
        raise PrototxtError(
            f"the training net has no {lack}, by which to compare the devices in {named}; leave pipeline_param "
            "{ devices } out", plan.origin("net"),
        )  # fmt: skip
    if costs is not None:
        work += costs.update / max(plan.optim.iter_size, 1)
    devices, link = _of_profile(path, graph, work) if is_profile(path) else _of_cluster(plan, path, graph, work)
    if len(devices) != stages:
        kind = "rank" if is_profile(path) else "node"
        counted = f"{len(devices)} {kind}{'s' * (len(devices) != 1)}"
        message = f"has {counted}, but num_stages is {stages}: a pipeline has one for each of its stages"
        raise error_of_file(plan, "devices", named, message)
    return devices, link


def count_devices(plan: RunPlan) -> int:
    """Return how many devices the file ``pipeline_param { devices }`` describes; 0 without a file.

    Raises:
        PrototxtError, FileError: as ``devices_of``.
    """
    named = plan.parallel_param.pipeline_param.devices
    if not named:
        return 0
    path = file_of(plan, "devices", named)
    if is_profile(path):
        return len(read_profile(path).speeds)
    return sum(node.count for node in ClusterSource(path).param.node)


def is_profile(path: str) -> bool:
    """Return whether the file at ``path`` looks like JSON; a text of fields never starts with a brace."""
    if os.path.isdir(path):
        return False
    try:
        with open(path, "rb") as file:
            return file.read(1000).lstrip()[:1] in (b"{", b"[")
    except OSError:
        return False  # reading it reports why


def _of_profile(path: str, graph: LayerGraph, work: float) -> tuple[tuple[Device, ...], DeviceLink]:
    profile = read_profile(path)
    if profile.facts.network != work_digest(graph):
        raise FileError(
            path,
            f'was measured for another net ("{profile.name}") than "{graph.name}". Measure again, with the same --set: '
            f"mpirun -n {len(profile.speeds)} … bpt time --solver S --profile {path}",
        )
    batch = batch_of(graph)
    iter_size = profile.facts.solver.get("iter_size", 1)  # passes that each measured time is of
    assert isinstance(iter_size, int)
    devices = []
    for rank, (facts, speed) in enumerate(zip(profile.facts.ranks, profile.speeds, strict=True)):
        seconds = speed.function.seconds(batch) / max(iter_size, 1)
        devices.append(Device(f"rank {rank} ({facts.host})", work / seconds))
    return tuple(devices), NOMINAL_LINK


def _of_cluster(plan: RunPlan, path: str, graph: LayerGraph, work: float) -> tuple[tuple[Device, ...], DeviceLink]:
    described, batch = ClusterSource(path), batch_of(graph)
    cluster = described.cluster(TRAINING * graph.flops / batch, max(plan.random_seed, 0))
    nodes = cluster.nodes
    devices = tuple(
        Device(name, node.speed * work / batch, node.memory, node.capacity)
        for name, node in zip(_names(nodes), nodes, strict=True)
    )
    latencies = sum(sorted(node.latency for node in nodes)[-2:]), *(link.latency for link in cluster.links)
    bandwidths = *(node.bandwidth for node in nodes), *(link.bandwidth for link in cluster.links)
    return devices, DeviceLink(max(latencies), min(bandwidths))


def _names(nodes: Sequence[Node]) -> list[str]:
    """Return the nodes' names; nodes of the same name get a number."""
    names = [node.name for node in nodes]
    return [
        f"{name}.{names[:index].count(name)}" if names.count(name) > 1 else name for index, name in enumerate(names)
    ]
