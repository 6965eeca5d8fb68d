"""balance STATIC against UNIFORM on unlike hosts: same net, same batch, in turn in one job, on ``scripts/testbed``.

First the speeds of the hosts are measured as a user does it, by ``bpt time --solver S --profile speed.json``. Then one
job trains in turn with equal shares (UNIFORM) and with shares by these speeds (STATIC).

    achieved speed-up = time of an iteration with UNIFORM / with STATIC
    ideal speed-up    = max_p t_p(B / P) / (B / sum_p s_p)

B is the batch, P the number of ranks, t_p(x) the seconds that rank p computes for x samples, and s_p = x_p / t_p(x_p)
its speed at the share x_p that STATIC gives it. So the ideal is a batch that all ranks finish at the same moment, at
the speeds that they have, without any exchange, against the slowest of equal shares. The achieved one has all that
training has: the exchange, which both sides pay and which so lowers the ratio, shares of whole samples, iterations
that are not all alike, and errors of the profile. It is compared with two ideals, by two measurements of t_p:

    in training: as the ranks computed in these turns, without waiting for each other
    by the profile: as it was measured before; it has all ranks busy all the time, and the machine may have been
                    another one then

BatchNorm normalises each rank's share by itself here, as in StaticLB; with ``sync_batch_norm: true`` ranks would wait
for each other in every layer. The layout is set (CHANNELS_LAST), so that no trials of it fall into the measurement.
"""

from __future__ import annotations

import argparse
import math
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from bpt.balance import imbalance
from bpt.balance.profile import read_profile, static_from
from bpt.comm.base import Communicator
from bpt.events.totals import Totals, phase_seconds, seconds_computing
from bpt.layers.base import batch_of
from bpt.proto import bpt_pb2 as pb
from bpt.proto.sources import read_solver
from bpt.proto.text import to_text
from bpt.solver.solver import Solver
from scripts.benches.harness.launch import PROTOTXT, ROOT
from scripts.benches.harness.nets import reading_net
from scripts.benches.harness.testbed import TESTBED, call, end_by_signals, on_testbed, run_on_hosts
from scripts.benches.harness.turns import in_turn

HELP = "balance STATIC against UNIFORM on a fast and a slow host of scripts/testbed (Linux, root)"
SHAPES = {"resnet20": "3x32x32", "staticlb_cifar10": "3x32x32", "staticlb_mnist": "1x28x28"}
# Such that an iteration takes half a second or more. A host of a quarter of a core needs 10 to 20 ms for the exchange,
# and stands still for 7.5 ms at a time, so that shorter iterations are uneven.
BATCHES = {"resnet20": 512, "staticlb_cifar10": 4096, "staticlb_mnist": 8192}
IMAGES = 16384
SIDES = ("UNIFORM", "STATIC")
HOSTS, BANDWIDTH = "a:1.0,b:0.25", "1gbit"
WARM_UP = 3  # iterations of each side before the first turn
FEWEST = 3  # iterations of a turn


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--nets", default=",".join(SHAPES), help="which, separated by commas (default: all)")
    parser.add_argument("--batch", type=int, help="samples of all ranks together (default: see the file)")
    parser.add_argument("--rounds", type=int, default=8, help="turns of each side (default %(default)s)")
    parser.add_argument("--seconds", type=float, default=6, help="of a turn, at least (default %(default)s)")
    parser.add_argument("--hosts", help=f"of the test bed (default: those of one that is up, or else {HOSTS})")
    parser.add_argument("--bandwidth", help=f"of each host's link (default: of one that is up, or else {BANDWIDTH})")
    parser.add_argument("--folder", type=Path, help="keep profiles and times there (default: nowhere)")


@dataclass(frozen=True)
class Turn:
    """What was seen of one side in a turn of iterations; all numbers are means of an iteration, in seconds.

    Attributes:
        seconds: of the whole iteration.
        computing: that each rank computed, without waiting for others.
        exchange: that the exchange added on each rank, waiting included.
    """

    seconds: float
    computing: tuple[float, ...]
    exchange: tuple[float, ...]


@dataclass(frozen=True)
class Outcome:
    """One side's turns; its numbers are medians over them, in seconds.

    Attributes:
        shares: samples of each rank.
    """

    shares: tuple[int, ...]
    turns: tuple[Turn, ...]

    @property
    def seconds(self) -> float:
        """Of an iteration."""
        return median(turn.seconds for turn in self.turns)

    @property
    def computing(self) -> list[float]:
        """That each rank computes."""
        return [median(times) for times in zip(*(turn.computing for turn in self.turns), strict=True)]

    @property
    def exchange(self) -> float:
        """That the exchange takes on the rank that waits least."""
        return median(min(turn.exchange) for turn in self.turns)


def ideal_seconds(shares: Sequence[int], seconds: Sequence[float]) -> float:
    """B / sum_p s_p: of a batch that could be divided perfectly.

    Args:
        shares: x_p, samples of each rank near which its speed counts; one without any adds nothing.
        seconds: t_p(x_p).
    """
    return sum(shares) / sum(share / time for share, time in zip(shares, seconds, strict=True) if share)


def report(
    title: str, hosts: Sequence[str], predicted: Mapping[str, Sequence[float]], sides: Mapping[str, Outcome]
) -> Iterator[str]:
    """The lines about one net.

    Args:
        hosts: of the ranks.
        predicted: side → seconds that the profile says for each rank.
    """
    static, uniform = sides["STATIC"], sides["UNIFORM"]
    yield f"{title}, batch {sum(static.shares)}: ms an iteration, medians of {len(static.turns)} turns"
    yield f"  {'':<8} {'rank':<8} {'samples':>8} {'predicted':>10} {'seen':>10}"
    for side, outcome in sides.items():
        for rank, (host, count, *times) in enumerate(
            zip(hosts, outcome.shares, predicted[side], outcome.computing, strict=True)
        ):
            cells = " ".join(f"{seconds * 1e3:>10.1f}" for seconds in times)
            yield f"  {'' if rank else side:<8} {f'{rank} ({host})':<8} {count:>8} {cells}"
        yield (
            f"  {'':<8} imbalance predicted {imbalance(predicted[side]):.1%}, seen {imbalance(outcome.computing):.1%}; "
            f"exchange {outcome.exchange * 1e3:.1f}; whole iteration {outcome.seconds * 1e3:.1f}"
        )
    achieved = uniform.seconds / static.seconds
    yield f"  speed-up of STATIC over UNIFORM: {achieved:.3f}"
    for words, even, own in (
        ("in training", uniform.computing, static.computing),
        ("by the profile", predicted["UNIFORM"], predicted["STATIC"]),
    ):
        best = ideal_seconds(static.shares, own)
        ideal = max(even) / best
        yield (
            f"  ideal at the speeds {words}: {ideal:.3f} ({max(even) * 1e3:.1f} / {best * 1e3:.1f}); "
            f"achieved / ideal {achieved / ideal:.1%}"
        )


def write_solver(name: str, batch: int, data: Path, folder: Path) -> Path:
    """The solver of the network ``name`` of ``prototxt/``, for training alone on the images in ``data``."""
    param = read_solver(PROTOTXT / name / "solver.prototxt").param
    param.snapshot_after_train = False
    tests = "test_net", "test_iter", "test_state", "test_interval"
    for field in ("net", *tests, "snapshot", "display", "stepvalue", "parallel_param"):
        param.ClearField(field)
    param.net_param.CopyFrom(reading_net(name, data, batch))
    param.lr_policy, param.base_lr = "fixed", 1e-4  # so low that weights stay what they are, whatever the data
    param.max_iter = 10**6
    param.random_seed = 1
    param.snapshot_prefix = "bench"
    param.engine = pb.SolverParameter.CHANNELS_LAST
    param.parallel_param.balance_param.profile = str(folder / f"{name}.json")
    path = folder / f"{name}.prototxt"
    path.write_text(to_text(param))
    return path


def make_images(shape: str, folder: Path) -> Path:
    """Synthetic images as an LMDB."""
    made = folder / shape
    if not made.exists():
        words = [str(made), "--shape", shape, "--train", str(IMAGES), "--test", "0"]
        call(ROOT / "scripts" / "make_synthetic.py", *words)
    return made / "train_lmdb"


def measure(name: str, arguments: argparse.Namespace, folder: Path) -> None:
    """Profile one net, train it with both balances, and print what came out."""
    batch = arguments.batch or BATCHES[name]
    solver = write_solver(name, batch, make_images(SHAPES[name], folder), folder)
    path = folder / f"{name}.json"
    call(TESTBED, "run", "--", "bpt", "time", "--solver", str(solver), "--profile", str(path))
    order = {"solver": str(solver), "rounds": arguments.rounds, "seconds": arguments.seconds}
    sides = outcomes(run_on_hosts("balance", order, folder))
    profile = read_profile(str(path))
    functions = static_from(profile).functions
    predicted = {
        side: [f.seconds(count) for f, count in zip(functions, outcome.shares, strict=True)]
        for side, outcome in sides.items()
    }
    for line in report(name, [rank.host for rank in profile.facts.ranks], predicted, sides):
        print(line, flush=True)


def outcomes(read: dict[str, Any]) -> dict[str, Outcome]:
    """Side → outcome, from what the first rank has answered."""
    return {
        side: Outcome(
            tuple(read[side]["shares"]),
            tuple(Turn(t["seconds"], tuple(t["computing"]), tuple(t["exchange"])) for t in read[side]["turns"]),
        )
        for side in SIDES
    }


def run(arguments: argparse.Namespace) -> None:
    end_by_signals()
    hosts, bandwidth = arguments.hosts or HOSTS, arguments.bandwidth or BANDWIDTH
    with tempfile.TemporaryDirectory() as scratch:
        folder = arguments.folder.resolve() if arguments.folder else Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        with on_testbed(hosts, bandwidth, any_will_do=not (arguments.hosts or arguments.bandwidth)) as words:
            print(words, flush=True)
            for name in arguments.nets.split(","):
                measure(name, arguments, folder)


def work(order: dict[str, Any], world: Communicator) -> dict[str, Any]:
    """A rank: each side's shares and turns; see Outcome."""
    sides: dict[str, Any] = {}
    solvers: dict[str, Solver] = {}
    iterations: dict[str, int] = {}
    for side in SIDES:
        source = read_solver(order["solver"], [f"parallel_param {{ balance: {side} }}"])
        solvers[side] = solver = Solver(source, world=world)
        solver.step(1)
        slowest = max(world.allgather(train(solver, world, WARM_UP)["seconds"]))
        iterations[side] = max(FEWEST, math.ceil(order["seconds"] / slowest))
        shares = solver.runtime.parallel.shares(batch_of(solver.net.graph))
        sides[side] = {"shares": [share.count for share in shares], "turns": []}
    for side in in_turn(SIDES, order["rounds"]):
        solvers[side].step(1)  # does not count: data were read ahead meanwhile, caches are the other side's
        sides[side]["turns"].append(train(solvers[side], world, iterations[side]))
    return sides


def train(solver: Solver, world: Communicator, iterations: int) -> dict[str, Any]:
    """Train so many iterations; the time of one, and what each rank did in it."""
    world.Barrier()
    totals = solver.runtime.events.add(Totals())
    start = time.perf_counter()
    solver.step(iterations)
    world.Barrier()  # until the last rank has done its update, too
    seconds = (time.perf_counter() - start) / iterations
    solver.runtime.events.remove(totals)
    taken = totals.take()
    phases = phase_seconds(taken)
    return {
        "seconds": seconds,
        "computing": world.allgather(seconds_computing(taken) / iterations),
        "exchange": world.allgather(phases["exchange"] / iterations),
    }
