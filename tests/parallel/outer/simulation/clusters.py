"""Made-up clusters, schedules and runs for tests."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from fractions import Fraction

from bpt.parallel.cluster.cluster import Cluster, Node, ServerNode
from bpt.parallel.outer.agwu import Agwu
from bpt.parallel.outer.asgd import Asgd
from bpt.parallel.outer.base import OuterSchedule
from bpt.parallel.outer.idpa import Idpa, Udpa
from bpt.parallel.outer.outer_instructions import Order, OuterInstruction, SendOrder, SubmissionReport
from bpt.parallel.outer.sgwu import Sgwu
from bpt.parallel.outer.simulation.outcome import SimulationOutcome
from bpt.parallel.outer.simulation.simulator import SimulatedJob, simulate

SCHEDULES: dict[str, Callable[[Idpa | Udpa, Fraction], OuterSchedule]] = {"SGWU": Sgwu, "AGWU": Agwu, "ASGD": Asgd}


def schedule(exchange: str, samples: int, nodes: int, passes: float, batches: int = 0) -> OuterSchedule:
    """``batches``: of IDPA; 0: UDPA."""
    idpa = Idpa(samples, nodes, batches) if batches else Udpa(samples, nodes)
    return SCHEDULES[exchange](idpa, Fraction(passes))


def play(
    exchange: str,
    nodes: Sequence[Node],
    samples: int,
    passes: float,
    batches: int = 0,
    server: ServerNode = ServerNode(),  # noqa: B008  it is frozen
    job: SimulatedJob = SimulatedJob(batch=10, weights=200),  # noqa: B008
    colocated: bool = False,
    seed: int = 0,
) -> SimulationOutcome:
    """Simulate one run."""
    made = schedule(exchange, samples, len(nodes), passes, batches)
    return simulate(made, Cluster(tuple(nodes), server, colocated), job, seed)


def random_cluster(seed: int) -> Cluster:
    """2 to 9 unlike nodes, some of which change, and one of which may die."""
    generator = random.Random(seed)
    nodes = []
    for number in range(generator.randint(2, 9)):
        changes = [(generator.uniform(0, 30), generator.uniform(0.3, 3)) for _ in range(generator.randint(0, 2))]
        nodes.append(
            Node(
                name=generator.choice("abc"),
                speed=generator.uniform(10, 100),
                noise=generator.choice([0, 0.1, 0.5]),
                latency=generator.choice([0, 0.01]),
                bandwidth=generator.choice([1e3, 1e4]),
                changes=tuple(sorted(changes)),
                fails=generator.uniform(1, 40) if number == 1 and seed % 3 == 0 else float("inf"),
            )
        )
    return Cluster(tuple(nodes), ServerNode(0.001, generator.choice([2e3, 1e6]), generator.choice([1e4, 1e9])))


class Scripted:
    """Stands for an OuterSchedule: every worker gets ``rounds`` orders of a pass over ``samples``, then stops.

    Attributes:
        told: what ``progressed`` was called with.
        gone: what ``lost`` was called with.
    """

    def __init__(self, workers: int, samples: int, rounds: int, asks: Sequence[int] = ()) -> None:
        self.told: list[tuple[int, int, float]] = []
        self.gone: list[tuple[int, ...]] = []
        self._workers = workers
        self._samples = samples
        self._rounds = rounds
        self._asks = asks

    def begin(self, frequencies: Sequence[float | None]) -> list[OuterInstruction]:
        runs = [((w * self._samples, (w + 1) * self._samples),) for w in range(self._workers)]
        return [SendOrder(Order(w, 0, Fraction(1), runs=runs[w])) for w in range(self._workers)]

    def submitted(self, report: SubmissionReport) -> list[OuterInstruction]:
        return [SendOrder(Order(report.worker, 1, report.passes + 1, stop=report.passes >= self._rounds))]

    def progressed(self, worker: int, samples: int, seconds: float) -> None:
        self.told.append((worker, samples, seconds))

    def hands_out(self, worker: int) -> bool:
        return worker in self._asks

    def lost(self, *workers: int) -> list[OuterInstruction]:
        self.gone.append(workers)
        return []
