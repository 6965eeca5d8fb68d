"""``bpt simulate`` against the test bed: a cluster's text from what the calibration saw, and the times of both."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from bpt.base.log import columns
from bpt.config.plan.resolve import resolve
from bpt.config.proto import bpt_pb2 as pb
from bpt.config.proto.sources import read_solver
from bpt.config.proto.text import to_text
from bpt.parallel.outer.simulation.outcome import SimulationOutcome
from bpt.perf.simulate.simulation import PAPER_STRATEGIES, simulate_solver
from scripts.benches.bptcnn.results import Runs, mean_seconds

WITHIN = 0.1  # goal: of the measured time
_MEGA, _BITS = 1e6, 8


@dataclass(frozen=True)
class Node:
    """A worker's host.

    Attributes:
        speed: samples a second.
        noise: of an iteration's time: standard deviation as a part of the mean.
        frequency: that bpt reads.
        small, large: seconds that a short message and all weights take, one way.
        warm_up: seconds until its worker trains.
    """

    host: str
    speed: float
    noise: float
    frequency: float | None
    small: float
    large: float
    warm_up: float = 0.0

    def bandwidth(self, weights: int) -> float:
        """Bytes a second."""
        return weights / (self.large - self.small)


@dataclass(frozen=True)
class Calibration:
    """What calibration.py has seen.

    Attributes:
        weights: their bytes.
        merge: seconds that the server takes to merge weights.
    """

    weights: int
    nodes: tuple[Node, ...]
    merge: float

    @classmethod
    def read(cls, path: Path) -> Calibration:
        """From the file that it wrote."""
        seen = json.loads(path.read_text())
        fields = ("host", "speed", "noise", "frequency", "small", "large", "warm_up")
        nodes = tuple(Node(**{field: node[field] for field in fields if field in node}) for node in seen["nodes"])
        return cls(seen["weights"], nodes, seen["merge"])

    def cluster(self) -> pb.ClusterParameter:
        """As ``bpt simulate`` takes it."""
        param = pb.ClusterParameter()
        for node in self.nodes:
            made = param.node.add(
                name=node.host, samples_per_second=node.speed, noise=node.noise, latency=node.small,
                bandwidth=node.bandwidth(self.weights) * _BITS / _MEGA, warm_up=node.warm_up,
            )  # fmt: skip
            if node.frequency is not None:
                made.frequency = node.frequency
        param.server.bandwidth = max(node.bandwidth for node in param.node)
        param.server.update_rate = self.weights / self.merge / _MEGA
        return param


def simulate(solver: Path, calibration: Calibration, cluster: Path, seed: int = 1) -> dict[str, SimulationOutcome]:
    """All ways to train on the cluster of the calibration, which is written to the file ``cluster``."""
    cluster.write_text(to_text(calibration.cluster()))
    source = read_solver(solver, [f"random_seed: {seed} parallel_param {{ exchange: AGWU balance: IDPA }}"])
    outcomes = simulate_solver(resolve(source), str(cluster), PAPER_STRATEGIES).outcomes
    return {str(way): outcome for way, outcome in outcomes.items()}


def compared(outcomes: Mapping[str, SimulationOutcome], runs: Runs) -> Iterator[str]:
    """A line for each way, and whether the goal is reached."""
    rows = [("way", "simulated s", "measured s", "simulated / measured", "waiting", "idle", "balance")]
    for name, outcome in outcomes.items():
        measured = mean_seconds(runs[name])
        rows.append((
            name, f"{outcome.seconds:.2f}", f"{measured:.2f}", f"{outcome.seconds / measured:.3f}",
            f"{outcome.waited:.2%}", f"{outcome.idle:.2%}", f"{outcome.balance:.4f}",
        ))  # fmt: skip
    yield from columns(rows, left=1)
    worst = max(abs(outcome.seconds / mean_seconds(runs[name]) - 1) for name, outcome in outcomes.items())
    yield f"worst difference {worst:.1%}, at most {WITHIN:.0%}: {'reached' if worst <= WITHIN else 'missed'}"


SIMULATED = ("way", "simulated", "measured", "ratio", "waiting", "idle", "balance_index")


def simulated_rows(outcomes: Mapping[str, SimulationOutcome], runs: Runs) -> Iterator[tuple[object, ...]]:
    """A row for each way, in the columns of SIMULATED."""
    for name, outcome in outcomes.items():
        measured = mean_seconds(runs[name])
        yield (
            name, outcome.seconds, measured, outcome.seconds / measured, outcome.waited, outcome.idle, outcome.balance
        )  # fmt: skip
