"""The job's nodes as a cluster file: what --cluster of doctor measures, shows and writes."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch

from bpt.comm.agreement import outcome_of_first
from bpt.doctor.findings import Finding, Ranks, Section, note, ok
from bpt.net_graph import build_graph_of
from bpt.plan.spec import RunPlan
from bpt.predict.cluster_file import cluster_text
from bpt.proto import bpt_pb2 as pb
from bpt.proto.atomic import atomic_file
from bpt.report.log import columns
from bpt.schedule.cluster import Cluster
from bpt.speeds.job_cluster import measured_cluster


def describe_cluster(ranks: Ranks, plan: RunPlan, device: torch.device, path: str) -> Section:
    """Measure the ranks with the net of ``plan``, going in step, and write their cluster; a collective call.

    Raises:
        UserError: the net has no batch to divide.
        WriteError: the file cannot be written.
    """
    if plan.is_outer:  # whose workers train by themselves what ranks in step do together
        plan = plan.with_parallel(exchange=pb.ParallelParameter.ALLREDUCE)
    cluster = measured_cluster(plan, build_graph_of(plan.train), device, ranks.world)

    def write() -> None:
        head = f"# Measured by bpt doctor on {ranks.world.size} ranks with {plan.path}; speeds are of that net.\n"
        with atomic_file(path) as file:
            file.write((head + cluster_text(cluster)).encode())

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
            f"pairs of hosts that send at once have {cluster.shared / 1e6:.0f} MB/s together, and each less than alone",
            "they share a switch or a cable: see whether all are behind one uplink; or no cores are left for it",
        )


def _link(latency: float, bandwidth: float) -> tuple[str, str]:
    return f"{latency * 1e6:.1f} µs", f"{bandwidth / 1e6:.0f} MB/s"
