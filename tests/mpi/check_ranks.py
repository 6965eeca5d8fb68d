"""Run by mpirun: trains the cases of ``test_check.py`` on all ranks and on one, and prints what differs as JSON."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch

from bpt.apps.check.comparison import Compared, TensorDifference, compare
from bpt.base.errors import BptError
from bpt.config.plan.resolve import read_plan
from bpt.config.plan.run_plan import RunPlan
from bpt.config.precision import FLOAT32, FLOAT64, Precision
from bpt.config.proto import bpt_pb2 as pb
from bpt.nn.net_graph import build_graph_of
from bpt.parallel.balance.profile import Profile, RankSpeed, write_profile
from bpt.parallel.balance.rank_facts import facts
from bpt.parallel.balance.speed import Estimate
from bpt.system.comm.base import Communicator
from bpt.system.comm.launch import world

PROTOTXT = Path(__file__).parents[2] / "prototxt"
CPU = torch.device("cpu")
SIDES = {"lenet": 28, "cifar10_quick": 32, "alexnet": 72, "googlenet": 40, "resnet20": 32}


def solver_text(net: str, batch: int, data: Path) -> str:
    """A solver with the training net of ``prototxt/<net>``, on images that are small and ``batch`` at a time."""
    text = (PROTOTXT / net / "train_val.prototxt").read_text()
    text = re.sub(r'source: "[^"]*"', f'source: "{data / net}_lmdb"', text)
    text = re.sub(r"batch_size: \d+", f"batch_size: {batch}", text)
    text = re.sub(r"crop_size: \d+", f"crop_size: {SIDES[net] - 5}", text) if net in ("alexnet", "googlenet") else text
    text = text.replace("num_output: 4096", "num_output: 1024")  # AlexNet's, which take most of the time
    text = re.sub(r'mean_file: "[^"]*"', "mean_value: 128", text)
    # GoogLeNet's last pools are as large as its blobs are with images of 224 × 224.
    text = re.sub(r"pool: AVE kernel_size: [57] stride: \d", "pool: AVE global_pooling: true", text)
    path = data / f"{net}_{batch}.prototxt"
    path.write_text(text)
    return f'net: "{path}" base_lr: 0.01 lr_policy: "fixed" max_iter: 100 random_seed: 7 snapshot_prefix: "{data}/s"'


def uneven(source: RunPlan, comm: Communicator, folder: Path) -> RunPlan:
    """``source``, but it divides batches as 1 : 2 : 3 …, by a profile that fits this run."""
    path = folder / f"uneven{comm.size}.json"
    graph = build_graph_of(source.train)
    now = facts(source, graph, CPU, comm)
    speeds = tuple(
        RankSpeed({size: Estimate(size / (rank + 1), 0.0, 3) for size in (1, 100)}, 1000) for rank in range(comm.size)
    )
    if comm.rank == 0:
        write_profile(Profile(now, speeds, 1, graph.name, ""), str(path))
    comm.Barrier()
    return source.with_parallel(balance_param=replace(source.parallel_param.balance_param, profile=str(path)))


def run_case(
    comm: Communicator, folder: Path, precision: Precision, net: str, batch: int, solver: str, parallel: str
) -> Sequence[Compared]:
    path = folder / f"solver_{net}_{batch}_{comm.size}.prototxt"
    if comm.rank == 0:
        path.write_text(solver_text(net, batch, folder))
    comm.Barrier()
    source = read_plan(path, [f"{solver} parallel_param {{ {parallel} }}"])
    source = replace(source, engine=pb.SolverParameter.CONTIGUOUS)
    if source.parallel_param.balance == pb.ParallelParameter.STATIC:
        source = uneven(source, comm, folder)
    return compare(source, CPU, comm, 10 if precision is FLOAT64 else 1, precision)[0]


def relative(gradient: TensorDifference | None) -> float | None:
    """Return the difference of a gradient; ``None`` if no rank has it, which is a mistake where none is lost."""
    return gradient.relative if gradient else None


def main() -> None:
    torch.set_num_threads(1)
    folder, cases = Path(sys.argv[1]), json.loads(sys.argv[2])
    comm = world()
    for case in cases:
        try:
            double, single = (run_case(comm, folder, precision, *case) for precision in (FLOAT64, FLOAT32))
        except BptError as error:
            print(f"rank {comm.rank}: {case}: {error}", file=sys.stderr, flush=True)
            comm.Abort(1)
        if comm.rank == 0:
            worst = {
                exact.name: [relative(exact.gradient), exact.weight.relative, relative(rounded.gradient)]
                for exact, rounded in zip(double, single, strict=True)
            }
            print(json.dumps([*case, worst]), flush=True)


if __name__ == "__main__":
    main()
