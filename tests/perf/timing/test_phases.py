"""The tables of ``bpt time`` on many ranks, line by line; and that they come from the training loop itself."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from bpt.config.plan.run_plan import RunPlan
from bpt.config.proto.sources import SolverSource
from bpt.graph.segments import cut
from bpt.perf.timing.phases import WARM_UP, RankTimes, link_table, phase_table, time_phases, time_ranks, traffic_table
from bpt.system.comm.base import Communicator
from bpt.system.device import CPU
from bpt.system.events.totals import Traffic
from bpt.train.runtime import parallel
from bpt.train.solver.solver import Solver
from tests.support.doubles.seen import key_of, printed
from tests.support.doubles.thread_ranks import run_ranks
from tests.support.golden_cases import graph_of
from tests.support.small_solver import NET, SOLVER, small_solver

PHASES = {"broadcast": 0.0, "forward": 0.02, "backward": 0.04, "exchange": 0.01, "update": 0.002}


def rank(host: str = "a", **traffic: Any) -> RankTimes:
    """Times of 2 iterations; a key "X1 b/0_Allreduce" is instruction and method."""
    return RankTimes(host, PHASES, 0.08, {key_of(*key.split("_")): value for key, value in traffic.items()})


def test_phases_by_rank() -> None:
    """Milliseconds of an iteration, half of the seconds in all; rank 1 has waited 10 ms in B1 and 2 ms in F0."""
    waiting = {name: Traffic(1, 8, 8, ms / 1e3) for name, ms in (("B1_Reduce", 10), ("F0_Bcast", 2), ("X0_Reduce", 9))}
    assert list(phase_table([rank(), rank("longer", **waiting)], 2)) == [
        "rank  host    broadcast  forward  backward  exchange  update   total  computing",
        "0     a           0.000   10.000    20.000     5.000   1.000  40.000     31.000",
        "1     longer      0.000   10.000    20.000     5.000   1.000  40.000     25.000",
        "exchange: the time it adds to an iteration, without the part hidden by backward. computing: without waiting.",
    ]


def test_the_wait_for_data_by_rank() -> None:
    """Seconds of 2 iterations; nothing is said if no rank has waited."""
    waiting = [RankTimes("a", PHASES, 0.08, {}, waited) for waited in (0.003, 0.0)]
    assert list(phase_table(waiting, 2))[-1] == "Wait for data, in forward, by rank: 1.500, 0.000 ms."


def test_bytes_by_link() -> None:
    """Of 2 iterations along a tree of 3 ranks; ranks that send no messages have no table."""
    links = [{1: 4000, 2: 4000}, {0: 4000}, {0: 4500}]
    assert list(link_table([RankTimes("a", PHASES, 0.08, {}, 0.0, each) for each in links], 2)) == [
        "Messages from one rank to another, mean of an iteration:",
        "from  to     kB",
        "   0   1  2.000",
        "   0   2  2.000",
        "   1   0  2.000",
        "   2   0  2.250",
    ]
    assert list(link_table([rank(), rank()], 2)) == []


def test_traffic_by_instruction() -> None:
    """Of 2 ranks and 2 iterations. Layers: 0 data, 1 conv, 2 ip, 3 loss."""
    graph = graph_of(NET)
    segments = cut(graph, [0, 2, 3])
    first: dict[str, Any] = {
        "W_Allreduce": Traffic(2, 64, 64, 0.004),
        "X2 ip/0 … ip/1_Allreduce": Traffic(2, 4000, 4000, 0.002),
        "X0 conv/0_Allreduce": Traffic(2, 0, 0, 0.0),
        "B1_Alltoallv": Traffic(4, 1000, 1000, 0.001),
        "F0_Allreduce": Traffic(2, 500, 500, 0.003),
        "C conv/0_Bcast": Traffic(2, 8000, 0, 0.001),
        "_Barrier": Traffic(7, 7, 7, 7.0),  # no part of an iteration
    }
    second = first | {
        "C conv/0_Bcast": Traffic(2, 0, 8000, 0.003),
        "F10_Gatherv": Traffic(2, 40, 40, 0.0004),
        "F2_Gatherv": Traffic(2, 40, 40, 0.0004),
    }
    table = list(traffic_table(graph, [*segments, *segments * 3], [rank(**first), rank(**second)], 2))
    # kB sent: of both ranks in an iteration. ms: the mean of the ranks. MB/s: what a rank sends in a second of the
    # call; C: 8000 B in 4 ms.
    assert table == [
        "instruction  layer/blob   method     calls  kB sent     ms  MB/s",
        "C            conv/0       Bcast          1    4.000  1.000   2.0",
        "F0           data … conv  Allreduce      1    0.500  1.500   0.2",
        "F2           loss         Gatherv      0.5    0.020  0.100   0.1",
        "F10          ip           Gatherv      0.5    0.020  0.100   0.1",
        "B1           ip           Alltoallv      2    1.000  0.500   1.0",
        "X0           conv/0       Allreduce      1    0.000  0.000",
        "X2           ip/0 … ip/1  Allreduce      1    4.000  1.000   2.0",
        "W            all          Allreduce      1    0.064  2.000   0.0",
        "kB sent: by all ranks together. ms: in the call on a rank, including its wait for others.",
        "F, B: activations of model-parallel layers, sums over the batch. X: gradients. C, A: weights. W: the loss.",
    ]


def timed(source: SolverSource | RunPlan, ranks: int, iterations: int) -> list[list[RankTimes]]:
    def run(comm: Communicator) -> list[RankTimes]:
        with Solver(source, world=comm) as solver:
            times = time_phases(solver.runtime, iterations)
            assert solver.runtime.iteration == WARM_UP + iterations
            return times

    return run_ranks(ranks, run)


def of_method(times: RankTimes) -> dict[tuple[str, str], tuple[int, int]]:
    return {(printed(key), key.method): (t.calls, t.sent) for key, t in times.traffic.items() if key.step}


def test_what_training_sends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes worked out by hand: conv has 4 · 3 · 9 + 4 = 112 parameters, ip 3 · 64 + 3 = 195."""
    monkeypatch.setattr(parallel, "SEGMENT", 150)  # ip, and conv with the data
    source = small_solver(tmp_path, text=SOLVER + "snapshot_after_train: false\n")
    everybody = timed(source, 2, 4)
    assert [len(seen) for seen in everybody] == [2, 2]
    for times in everybody[0]:
        # A ring over 2 ranks sends as many bytes as the message has. The loss comes with 4 numbers, in double.
        assert of_method(times) == {
            ("X0 conv/0 … conv/1", "Allreduce"): (4, 4 * 112 * 4),
            ("X1 ip/0 … ip/1", "Allreduce"): (4, 4 * 195 * 4),
            ("W", "Allreduce"): (4, 4 * 5 * 8),
        }
        assert 0 < sum(times.phases.values()) <= times.total
        assert 0 < times.computing <= times.phases["forward"] + times.phases["backward"] + times.phases["update"]
        assert times.phases["broadcast"] == 0


def test_what_a_tree_sends(tmp_path: Path) -> None:
    """Calls that send or receive, not those that wait for it."""
    text = SOLVER + "snapshot_after_train: false iter_size: 2 parallel_param { exchange: TREE }\n"
    first, second = timed(small_solver(tmp_path, text=text), 2, 3)[0]
    size, loss = 3 * 4 * (112 + 195), ("W", "Allreduce")
    weights, gradients = "C conv/0 … ip/1", "X0 conv/0 … ip/1"
    assert of_method(first) == {(weights, "Isend"): (3, size), (gradients, "Irecv"): (3, 0), loss: (3, 3 * 40)}
    assert of_method(second) == {(weights, "Irecv"): (3, 0), (gradients, "Isend"): (3, size), loss: (3, 3 * 40)}
    assert [first.links, second.links] == [{1: size}, {0: size}]
    assert first.phases["broadcast"] > 0


def test_what_a_tree_of_the_library_sends(tmp_path: Path) -> None:
    text = "snapshot_after_train: false iter_size: 2 parallel_param { exchange: TREE tree_param { sends: LIBRARY } }\n"
    first, second = timed(small_solver(tmp_path, text=SOLVER + text), 2, 3)[0]
    size = 3 * 4 * (112 + 195)
    bcast, reduce, loss = ("C conv/0 … ip/1", "Bcast"), ("X0 conv/0 … ip/1", "Reduce"), ("W", "Allreduce")
    assert of_method(first) == {bcast: (3, size), reduce: (3, 0), loss: (3, 3 * 40)}
    assert of_method(second) == {bcast: (3, 0), reduce: (3, size), loss: (3, 3 * 40)}
    assert first.phases["broadcast"] > 0


def test_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Only training happens, though the solver asks for tests, snapshots and displays."""
    more = f'test_iter: 1 test_interval: 1 snapshot: 1 display: 1 snapshot_prefix: "{tmp_path}/s" random_seed: 1\n'
    more += 'weights: "nowhere"\n'
    source = small_solver(tmp_path, text=SOLVER + more)
    with caplog.at_level(logging.INFO, "bpt"):
        ((alone,),) = run_ranks(1, lambda comm: time_ranks(source, CPU, comm, 2))
    assert of_method(alone) == {("W", "Allreduce"): (2, 0)}
    lines = caplog.messages
    start = lines.index("Training, mean of 2 iterations in ms:")
    assert lines[start + 1].split()[:3] == ["rank", "host", "broadcast"]
    assert lines[start + 2].split()[0] == "0"
    assert lines[start + 4] == "Between ranks, by segment of the net, mean of an iteration over all ranks:"
    assert len(lines) == start + 9
    assert not [line for line in lines if line.startswith(("Iteration", "    T", "Snapshotting"))]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["net.prototxt", "solver.prototxt"]
