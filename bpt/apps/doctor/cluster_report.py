"""Measure the job's nodes, show them, and write them as a cluster file, for ``bpt doctor --cluster``."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch

from bpt.apps.doctor.findings import Finding, Ranks, Section, note, ok
from bpt.base.atomic import write_text
from bpt.base.log import columns
from bpt.config.plan.run_plan import RunPlan
from bpt.config.proto import bpt_pb2 as pb
from bpt.nn.net_graph import build_graph_of
from bpt.parallel.cluster.cluster import Cluster
from bpt.parallel.cluster.cluster_file import cluster_text
from bpt.perf.speeds.job_cluster import measured_cluster
from bpt.system.comm.agreement import outcome_of_first


def describe_cluster(ranks: Ranks, plan: RunPlan, device: torch.device, path: str) -> Section:
    """Measure the ranks with the net of ``plan`` in synchronous training, and write a cluster file; a collective call.

    Raises:
        UserError: the net has no batch to divide.
        WriteError: the file cannot be written.
    """
    if plan.is_outer:  # the measurement needs synchronous ranks
        plan = plan.with_parallel(exchange=pb.ParallelParameter.ALLREDUCE)
    cluster = measured_cluster(plan, build_graph_of(plan.train), device, ranks.world)

    def write() -> None:
        head = f"# Measured by bpt doctor on {ranks.world.size} ranks with {plan.path}; speeds are of that net.\n"
        write_text(path, head + cluster_text(cluster))

    outcome_of_first(ranks.world, None if ranks.world.rank else write)
    return Section("Cluster", tuple(_findings(cluster, plan, path)), tuple(_table(cluster)))


def _table(cluster: Cluster) -> Iterator[str]:
    rows: list[tuple[str, ...]] = [("node", "ranks", "samples/s each", "cores", "MiB", "latency", "bandwidth")]
    for node in cluster.nodes:
        link = _link(node.latency, node.bandwidth) if len(cluster.nodes) > 1 else ("", "")
        memory = f"{node.memory / 2**20:,.0f}" if math.isfinite(node.memory) else ""
        rows.append((node.name, str(node.ranks), f"{node.speed:,.4g}", str(node.cores or ""), memory, *link))
    return iter(columns(rows, left=1))


def _findings(cluster: Cluster, plan: RunPlan, path: str) -> Iterator[Finding]:
    yield ok(f"wrote {path}: bpt plan --solver {plan.path} --auto --cluster {path}")
    for link in cluster.links:
        yield note(f"between {link.one} and {link.other}: {' and '.join(_link(link.latency, link.bandwidth))}")
    if math.isfinite(cluster.shared):
        yield note(
            f"pairs of hosts that send at once have {cluster.shared / 1e6:.0f} MB/s together, each less than one pair",
            "they share a switch or a cable: check whether all are behind one uplink, or too few cores are free",
        )


def _link(latency: float, bandwidth: float) -> tuple[str, str]:
    return f"{latency * 1e6:.1f} µs", f"{bandwidth / 1e6:.0f} MB/s"
