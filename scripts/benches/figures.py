"""The shapes of Fig. 12 to 15 of the BPT-CNN paper, from the simulator: tables (CSV) and figures (PNG).

``bpt simulate`` plays the schedules of a real run on a virtual clock; here it does so for the node counts, data sizes,
networks and strategies of the paper. The paper does not say how unlike its nodes are, how its strategies were
parametrised or what its network does, so seconds cannot be compared, but shapes can.

As in the paper: K = 100 iterations, which are passes of each node over its samples; 30 nodes and 600,000 samples where
nothing else is said. Ours: nodes that reach 30 GFLOPS in training, of speeds that differ by 25 % (standard deviation of
ln speed), vary by 10 % from iteration to iteration, and fall to four fifths now and then, for about a pass in four,
since others use the nodes as well; links of 1 Gbit/s, and of 10 Gbit/s at the server; batches of 256, A = 4, case 1 of
the networks. Speeds by threads are those of the inner layer: its task DAG of a whole iteration (Algorithms 4.1 and
4.2), replayed on a virtual clock with so many threads, by the estimated times of its tasks. A replay knows neither
shared caches nor memory's bandwidth, so that real threads gain less.

What the paper claims, and what comes out:

    Fig. 12   execution time rises with the data and falls with the nodes.  The same.  The paper's time for seven times
              the data is 4.9 times as long (62.77 s and 307.35 s); here it is nearly 7 times, since little in a pass
              has a fixed cost.
    Fig. 13   the time to an accuracy of 0.75, 42 passes by Table 1, falls with nodes and cores.  The same.
    Fig. 14   AGWU is faster than SGWU, IDPA than UDPA, both together fastest of all.  The same, everywhere.  With UDPA
              the gain of AGWU is small: the slowest node has as much to do under both, and it alone decides when the
              run ends. On nodes whose speed is constant, it would be small with IDPA, too.  The paper's "more
              noticeable" benefit on larger clusters and with more threads holds for the part of the time that is saved,
              not for seconds: all times fall.
    Fig. 15   a: bytes of BPT-CNN "slowly" rise with the nodes, from 2.35 to 11.44 MB, 4.9 times for 7 times the nodes.
              Here they are those of Eq. 11, so in proportion to the nodes, 7 times; and gigabytes, as 2 c_w m K' says
              for any network of Table 2.  b: a balance index that falls slowly, from 0.89 to 0.80. Here from 0.86 to
              0.80, and with UDPA from 0.75 to 0.65; but the paper does not define its index, and ours depends on the
              guesses above, so that they agree may be chance.
"""

from __future__ import annotations

import argparse
import csv
import random
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from pathlib import Path

from bpt.config.plan.resolve import resolve
from bpt.config.plan.run_plan import ParallelSpec, RunPlan
from bpt.config.proto import bpt_pb2 as pb
from bpt.config.proto.sources import read_solver
from bpt.graph.segments import whole
from bpt.nn.net import Net
from bpt.nn.net_graph import build_graph_of
from bpt.parallel.cluster.cluster import Cluster, Node, ServerNode, equal_nodes
from bpt.parallel.outer.exchanges import make_schedule
from bpt.parallel.outer.simulation.outcome import SimulationOutcome
from bpt.parallel.outer.simulation.simulator import SimulatedJob, simulate
from bpt.parallel.task_dag.dag_replay import replay
from bpt.parallel.task_dag.segment_plan import make_plan
from bpt.parallel.task_dag.task_costs import GRAIN
from bpt.perf.simulate.simulation import PAPER_STRATEGIES, Strategy
from bpt.perf.simulate.simulation_net import NetWorkload, without_data, workload_of
from bpt.train.outer.report import check_matplotlib, draw_lines

HELP = "execution time, bytes and balance of BPT-CNN after Fig. 12, 14 and 15 of its paper, simulated"
ROOT = Path(__file__).resolve().parents[2]
IMAGE = (3, 224, 224)
GFLOPS, SPREAD, NOISE = 30.0, 0.25, 0.1
LATENCY, LINK, SERVER_LINK, MERGED = 1e-4, 1e9 / 8, 1e10 / 8, 2e9  # seconds; bytes a second
SHARED, FREE, BUSY = 0.8, 3, 1  # speed while others use a node; passes for which it is free, or not, in the mean
THREADS_OF_SPEED = 8  # of a node, for which GFLOPS are told; a Nehalem EX has as many cores
BEST = Strategy("AGWU", "IDPA")
SEED = 1
PASSES_TO_ACCURACY = 42


@dataclass(frozen=True)
class Setting:
    """What is simulated; the defaults are the paper's, or ours.

    Attributes:
        case: of Table 2.
        samples, nodes: N and m.
        passes: K.
        threads: of the inner layer of each node.
    """

    case: int = 1
    samples: int = 600_000
    nodes: int = 30
    passes: int = 100
    threads: int = THREADS_OF_SPEED


@dataclass(frozen=True)
class Panel:
    """One diagram.

    Attributes:
        title, x, y: what it shows.
        values: along the x axis.
        setting: for one of them, from the common one.
        measure: what is shown of an outcome.
        strategies: one curve each.
    """

    title: str
    x: str
    y: str
    values: Sequence[int]
    setting: Callable[[Setting, int], Setting]
    measure: Callable[[SimulationOutcome], float]
    strategies: Sequence[Strategy] = PAPER_STRATEGIES


NODES, SAMPLES, CASES, THREADS = range(5, 36, 5), range(100_000, 700_001, 100_000), range(1, 8), (1, 2, 4, 8, 16)


def _seconds(outcome: SimulationOutcome) -> float:
    return outcome.seconds


def _of_samples(setting: Setting, value: int) -> Setting:
    return replace(setting, samples=value)


def _of_nodes(setting: Setting, value: int) -> Setting:
    return replace(setting, nodes=value)


def _of_threads(setting: Setting, value: int) -> Setting:
    return replace(setting, threads=value)


def _to_accuracy(change: Callable[[Setting, int], Setting]) -> Callable[[Setting, int], Setting]:
    """Train as many passes as the paper's Table 1 has for an accuracy of 0.75."""
    return lambda setting, value: replace(change(setting, value), passes=min(PASSES_TO_ACCURACY, setting.passes))


_TIME = "execution time (s)"
PANELS = {
    "fig12a": Panel("Fig. 12 (a), BPT-CNN", "samples", _TIME, SAMPLES, _of_samples, _seconds, [BEST]),
    "fig12b": Panel("Fig. 12 (b), BPT-CNN", "computing nodes", _TIME, NODES, _of_nodes, _seconds, [BEST]),
    "fig13a": Panel("Fig. 13 (a), to 0.75", "computing nodes", _TIME, NODES, _to_accuracy(_of_nodes), _seconds, [BEST]),
    "fig13b": Panel(
        "Fig. 13 (b), to 0.75", "cores of a node", _TIME, THREADS, _to_accuracy(_of_threads), _seconds, [BEST]
    ),
    "fig14a": Panel(
        "Fig. 14 (a)", "network (case of Table 2)", _TIME, CASES, lambda setting, case: replace(setting, case=case),
        _seconds,
    ),
    "fig14b": Panel("Fig. 14 (b)", "samples", _TIME, SAMPLES, _of_samples, _seconds),
    "fig14c": Panel("Fig. 14 (c)", "computing nodes", _TIME, NODES, _of_nodes, _seconds),
    "fig14d": Panel(
        "Fig. 14 (d)", "threads of a node", _TIME, THREADS, lambda setting, threads: replace(setting, threads=threads),
        _seconds,
    ),
    "fig15a": Panel(
        "Fig. 15 (a)", "computing nodes", "weights moved (GB)", NODES, _of_nodes,
        lambda outcome: outcome.weight_bytes / 1e9, [Strategy("AGWU", "UNIFORM"), BEST],
    ),
    "fig15b": Panel(
        "Fig. 15 (b)", "computing nodes", "balance index", NODES, _of_nodes, lambda outcome: outcome.balance,
        [Strategy("AGWU", "UNIFORM"), BEST],
    ),
}  # fmt: skip


@cache
def plan_of(case: int) -> RunPlan:
    """The training run of a case of Table 2."""
    solver = read_solver(ROOT / "prototxt" / "bpt_cnn" / f"case{case}" / "solver.prototxt")
    solver.param.net = str(ROOT / solver.param.net)
    return resolve(solver)


@cache
def facts(case: int) -> NetWorkload:
    """The network of a case."""
    return workload_of(plan_of(case), 1, IMAGE)


@cache
def iteration_seconds(case: int, threads: int) -> float:
    """Return the seconds of an iteration of a case on so many threads: its task DAG, replayed on a virtual clock.

    The DAG is the one that ``inner_param { engine: TASK_DAG }`` runs: forward, backward and update together.
    """
    net = Net(build_graph_of(without_data(plan_of(case).train, IMAGE)))
    [segment] = whole(net.graph)
    tasks = make_plan(net, segment, threads, GRAIN).both
    assert tasks is not None, case  # no layer of these networks calls a collective
    return replay(tasks, threads).seconds


@cache
def cluster(setting: Setting) -> Cluster:
    """The first nodes of a row of nodes, which is the same in all settings but for their speed."""
    speed = GFLOPS * 1e9 / facts(setting.case).flops
    if setting.threads != THREADS_OF_SPEED:
        speed *= iteration_seconds(setting.case, THREADS_OF_SPEED) / iteration_seconds(setting.case, setting.threads)
    node = Node("node", speed, NOISE, latency=LATENCY, bandwidth=LINK)
    nodes = equal_nodes(node, setting.nodes, SPREAD, random.Random(SEED))
    seconds = setting.samples / setting.nodes / speed  # of a pass
    shared = (disturbed(node, seconds, setting.passes, random.Random(number)) for number, node in enumerate(nodes))
    return Cluster(tuple(shared), ServerNode(0, SERVER_LINK, MERGED))


def disturbed(node: Node, seconds: float, passes: int, generator: random.Random) -> Node:
    """``node``, which others use as well, from time to time; for as long as three times the passes may take.

    Args:
        seconds: of a pass.
    """
    changes, now = [], 0.0
    while now < 3 * passes * seconds:
        for factor, mean in ((SHARED, FREE), (1.0, BUSY)):
            now += generator.expovariate(1 / (mean * seconds))
            changes.append((now, factor))
    return replace(node, changes=tuple(changes))


@cache
def outcome(setting: Setting, strategy: Strategy) -> SimulationOutcome:
    """The simulated run."""
    net = facts(setting.case)
    exchange = pb.ParallelParameter.Exchange.Value(strategy.exchange)
    balance = pb.ParallelParameter.Balance.Value(strategy.balance)
    plan = RunPlan(parallel_param=ParallelSpec(exchange=exchange, balance=balance))
    schedule = make_schedule(plan, setting.samples, setting.nodes, Fraction(setting.passes))
    return simulate(schedule, cluster(setting), SimulatedJob(net.batch, net.weights), SEED)


def curves(panel: Panel, setting: Setting) -> dict[str, list[tuple[float, float]]]:
    """The points of each strategy."""
    return {
        str(strategy): [
            (value, panel.measure(outcome(panel.setting(setting, value), strategy))) for value in panel.values
        ]
        for strategy in panel.strategies
    }


def write_csv(path: Path, x: str, series: Mapping[str, Sequence[tuple[float, float]]]) -> None:
    """A row for each value of ``x``, a column for each curve."""
    rows = zip(*series.values(), strict=True)
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([x, *series])
        writer.writerows([row[0][0], *(point[1] for point in row)] for row in rows)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--folder", "--output", type=Path, default=Path("figures"), help="where to write (default: %(default)s)"
    )
    parser.add_argument("--figures", default=",".join(PANELS), help="which, separated by commas (default: all)")
    parser.add_argument("--passes", type=int, default=100, help="K (default: %(default)s)")


def run(arguments: argparse.Namespace) -> None:
    check_matplotlib()
    names = arguments.figures.split(",")
    if unknown := [name for name in names if name not in PANELS]:
        sys.exit(f'no figure "{unknown[0]}"; there are {", ".join(PANELS)}')
    arguments.folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        panel = PANELS[name]
        series = curves(panel, Setting(passes=arguments.passes))
        write_csv(arguments.folder / f"{name}.csv", panel.x, series)
        draw_lines(arguments.folder / f"{name}.png", panel.title, panel.x, panel.y, series)
        print(f"{name}: {panel.y}")
        for strategy, points in series.items():
            print(f"  {strategy:<10}", *(f"{value:>9.4g}" for _, value in points), flush=True)
