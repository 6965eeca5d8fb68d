"""Whole runs of a small solver on ranks that are threads, in the current folder: its log, and what it writes."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bpt.base.signals import SignalActions
from bpt.config.plan.resolve import read_plan
from bpt.config.proto import bpt_pb2 as pb
from bpt.nn.net_graph import build_graph_of
from bpt.parallel.balance.profile import Profile, RankSpeed, write_profile
from bpt.parallel.balance.rank_facts import facts
from bpt.parallel.balance.speed import Estimate
from bpt.system.comm.base import Communicator
from bpt.system.device import CPU
from bpt.train.runtime.train_options import TrainOptions
from bpt.train.solver.solver import Solver
from tests.support.doubles.thread_ranks import run_ranks
from tests.support.hdf5_files import write

ROWS = 22
# "conv" goes without a bias: before a BatchNorm its gradient is rounding.
NET = """
name: "small"
layer { name: "data" type: "HDF5Data" top: "data" top: "label" include { phase: TRAIN }
  hdf5_data_param { source: "list.txt" batch_size: 6 shuffle: true } }
layer { name: "data" type: "HDF5Data" top: "data" top: "label" include { phase: TEST }
  hdf5_data_param { source: "list.txt" batch_size: 5 } }
layer { name: "conv" type: "Convolution" bottom: "data" top: "conv" parallel_param { mode: DATA }
  convolution_param { num_output: 4 kernel_size: 3 bias_term: false weight_filler { type: "xavier" } } }
layer { name: "bn" type: "BatchNorm" bottom: "conv" top: "conv" }
layer { name: "drop" type: "Dropout" bottom: "conv" top: "conv" }
layer { name: "fc" type: "InnerProduct" bottom: "conv" top: "fc"
  inner_product_param { num_output: 7 weight_filler { type: "xavier" } } }
layer { name: "relu" type: "ReLU" bottom: "fc" top: "fc" }
layer { name: "ip" type: "InnerProduct" bottom: "fc" top: "ip"
  inner_product_param { num_output: 3 weight_filler { type: "gaussian" std: 0.1 } } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }
layer { name: "accuracy" type: "Accuracy" bottom: "ip" bottom: "label" top: "accuracy" include { phase: TEST } }
layer { name: "scores" type: "Softmax" bottom: "ip" top: "scores" include { phase: TEST } }
"""
SOLVER = """
net: "net.prototxt" test_iter: 2 test_interval: 4 base_lr: 0.05 momentum: 0.9 weight_decay: 0.001 lr_policy: "step"
gamma: 0.5 stepsize: 5 max_iter: 9 display: 3 average_loss: 2 snapshot_prefix: "small" random_seed: 3 iter_size: 2
clip_gradients: 0.5 engine: CONTIGUOUS test_compute_loss: true parallel_param { sync_batch_norm: true }
"""


def set_up(folder: Path) -> None:
    """Put net, solver and data into ``folder``."""
    generator = np.random.default_rng(1)
    images = generator.standard_normal((ROWS, 2, 6, 6))
    write(folder, {"data": images, "label": np.arange(ROWS) % 3})
    (folder / "list.txt").write_text(f"{folder}/0.h5\n")
    (folder / "net.prototxt").write_text(NET)
    (folder / "solver.prototxt").write_text(SOLVER)


class FirstRank(logging.Handler):
    """Keeps what the first rank logs, as the command line shows it."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.threadName == "rank 0":
            self.lines.append(record.getMessage())


@dataclass(frozen=True)
class Line:
    """A line about an iteration: its words, and the numbers that may differ by rounding."""

    words: str
    numbers: tuple[float, ...]

    @classmethod
    def of(cls, text: str) -> Line:
        text = re.sub(r" \([\d.e+]+ iter/s.* iters\)", "", text)
        number = r"(?<=[=:] )(-?\d[-\d.e+]*|nan|inf)"
        return cls(re.sub(number, "N", text), tuple(map(float, re.findall(number, text))))


@dataclass(frozen=True)
class Run:
    """What is left of a run: its lines about iterations, and each rank's iterations done."""

    lines: list[Line]
    log: list[str]
    iterations: list[int]

    def since(self, iteration: int) -> list[Line]:
        """The lines from an iteration on."""
        start = next(i for i, line in enumerate(self.lines) if line.words.startswith(f"Iteration {iteration}"))
        return self.lines[start:]


def train(
    ranks: int,
    *overrides: str,
    resume: str = "",
    signals: Callable[[int], SignalActions | None] = lambda rank: None,
    each: Callable[[Solver], object] = lambda solver: None,
    hosts: Sequence[str] | None = None,
) -> Run:
    """Run ``solve`` on so many ranks.

    Args:
        signals: of each rank.
        each: called with each rank's solver before it starts.
        hosts: of each rank; by default all are on one.
    """
    handler = FirstRank()
    logger = logging.getLogger("bpt")
    level = logger.level

    def run(comm: Communicator) -> int:
        source = read_plan("solver.prototxt", overrides)
        with Solver(source, TrainOptions(resume=resume, signals=signals(comm.rank)), world=comm) as solver:
            each(solver)
            solver.solve()
            return solver.iter

    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        iterations = run_ranks(ranks, run, hosts=hosts)
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
    kept = [line for line in handler.lines if line.startswith(("Iteration", "    T", "Test loss"))]
    return Run([Line.of(line) for line in kept], handler.lines, iterations)


def assert_same_lines(ours: Sequence[Line], theirs: Sequence[Line], tolerance: float = 2e-5) -> None:
    assert [line.words for line in ours] == [line.words for line in theirs]
    for our, their in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(our.numbers, their.numbers, rtol=tolerance, atol=1e-6, err_msg=our.words)


def read_model(iteration: int) -> dict[str, np.ndarray]:
    """The weights of a snapshot, by layer and blob."""
    net = pb.NetParameter.FromString(Path(f"small_iter_{iteration}.caffemodel").read_bytes())
    return {f"{layer.name}/{i}": np.array(blob.data) for layer in net.layer for i, blob in enumerate(layer.blobs)}


def read_state(iteration: int) -> pb.SolverState:
    return pb.SolverState.FromString(Path(f"small_iter_{iteration}.solverstate").read_bytes())


@dataclass(frozen=True)
class Saved:
    """The content of a snapshot."""

    weights: dict[str, np.ndarray]
    history: list[np.ndarray]
    losses: list[float]
    rest: pb.SolverState

    @classmethod
    def read(cls, iteration: int) -> Saved:
        state = read_state(iteration)
        history, losses = [np.array(blob.data) for blob in state.history], list(state.loss_history)
        for field in ("history", "loss_history", "run", "written", "weights_digest", "checksum"):
            state.ClearField(field)  # what is compared by itself, and what no two runs have in common
        return cls(read_model(iteration), history, losses, state)

    def check(self, other: Saved, tolerance: float = 1e-4) -> None:
        """Fail unless both are the same up to rounding, relative to a blob's largest element."""
        assert self.rest == other.rest
        np.testing.assert_allclose(self.losses, other.losses, rtol=tolerance)
        assert self.weights.keys() == other.weights.keys()
        pairs = [(name, values, other.weights[name]) for name, values in self.weights.items()]
        pairs += [(f"history {i}", *both) for i, both in enumerate(zip(self.history, other.history, strict=True))]
        for name, ours, theirs in pairs:
            size = max(np.abs(theirs).max(initial=0), 1e-6)
            np.testing.assert_allclose(ours, theirs, rtol=0, atol=tolerance * size, err_msg=name)


def remove_snapshots() -> None:
    for path in Path().glob("small_iter_*"):
        path.unlink()


def check_goes_on_bit_for_bit(ranks: int, *overrides: str, hosts: Sequence[str] | None = None) -> None:
    """A run of 5 iterations that goes on from the snapshot of its third ends with the bits of one that did not stop."""
    texts = *overrides, "test_interval: 1000 max_iter: 5"
    ending = ".h5" if any("snapshot_format: HDF5" in text for text in texts) else ""
    weights = Path(f"small_iter_5.caffemodel{ending}")
    train(ranks, "snapshot: 3", *texts, hosts=hosts)
    straight = weights.read_bytes()
    weights.unlink()
    resumed = train(ranks, *texts, resume=f"small_iter_3.solverstate{ending}", hosts=hosts)
    assert resumed.iterations == [5] * ranks
    assert weights.read_bytes() == straight


def write_speeds(*seconds: float, caps: int = 1000) -> None:
    """A profile of this run in which rank r takes so many seconds a sample, and has room for ``caps``."""

    def run(comm: Communicator) -> None:
        source = read_plan("solver.prototxt")
        now = facts(source, build_graph_of(source.train), CPU, comm)
        speeds = tuple(RankSpeed({1: Estimate(s, 0.0, 3), 100: Estimate(100 * s, 0.0, 3)}, caps) for s in seconds)
        if comm.rank == 0:
            write_profile(Profile(now, speeds, 6, "small", ""), "speed.json")

    run_ranks(len(seconds), run)
