"""bpt on several ranks against PyTorch's DistributedDataParallel (gloo): same net, same batch, in alternation.

eager  as anyone would write it first: contiguous, torch.optim.SGD
fused  channels-last, torch.optim.SGD(fused=True)
"""

from __future__ import annotations

import argparse
import os
import socket
import subprocess
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from bpt.config.proto import bpt_pb2 as pb
from bpt.system.comm.launch import world as mpi_world
from scripts.benches.harness.arguments import explain
from scripts.benches.harness.launch import environment, mpirun, worker
from scripts.benches.harness.sides import Side, batch_of, bpt_side, plain_side, solver_source
from scripts.benches.harness.turns import Side as Processes
from scripts.benches.harness.turns import compete, serve_turns

HELP = "bpt under mpirun against PyTorch's DistributedDataParallel over gloo"
BATCHES = {"lenet": 64, "cifar10_quick": 100, "alexnet": 16, "resnet20": 64}
ITERATIONS = {"lenet": 40, "cifar10_quick": 8, "alexnet": 2, "resnet20": 6}  # a turn
DDP = ("eager", "fused")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    explain(parser, __doc__)
    parser.add_argument("--nets", default=",".join(BATCHES), help="which, separated by commas (default: all)")
    parser.add_argument("--ranks", type=int, default=2, help="processes of each side (default %(default)s)")
    parser.add_argument("--threads", type=int, default=1, help="torch threads of each (default %(default)s)")
    parser.add_argument("--rounds", type=int, default=10, help="turns of each side (default %(default)s)")
    parser.add_argument("--exchange", default="ALLREDUCE", help="bpt's exchange (default %(default)s)")


def start(kind: str, net: str, arguments: argparse.Namespace, folder: Path) -> Processes:
    """The processes of one side. They sleep on a pipe each until they are told to train, so that nobody polls."""
    pipes = [folder / f"{kind}{rank}" for rank in range(arguments.ranks)]
    for pipe in pipes:
        os.mkfifo(pipe)
    words = worker("ddp", kind, net, str(BATCHES[net]), str(arguments.threads), str(folder), arguments.exchange)
    own = environment(arguments.threads)
    if kind == "bpt":
        commands = [([*mpirun(arguments.ranks), *words], own)]
    else:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = str(probe.getsockname()[1])
        meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": str(arguments.ranks)}
        commands = [(words, own | meeting | {"RANK": str(rank)}) for rank in range(arguments.ranks)]
    processes = [
        subprocess.Popen(words, env=env, stdout=subprocess.PIPE if number == 0 else None, text=True)
        for number, (words, env) in enumerate(commands)
    ]
    return Processes(processes, [pipe.open("w") for pipe in pipes])


def run(arguments: argparse.Namespace) -> None:
    print(f"{arguments.ranks} processes, {arguments.threads} thread(s) each; medians of rank 0")
    times = "".join(f" {side + ' ms':>10}" for side in (*DDP, "bpt"))
    print(f"{'net':<14} {'batch':>5}{times} {'/eager':>6} {'/fused':>6}  layout chosen")
    for net in arguments.nets.split(","):
        with tempfile.TemporaryDirectory() as folder:
            eager, fused, ours = (start(kind, net, arguments, Path(folder)) for kind in (*DDP, "bpt"))
            # Warm-up covers the iterations in which bpt chooses its layout.
            compete((eager, fused, ours), arguments.rounds, ITERATIONS[net], 24 if ITERATIONS[net] > 2 else 14)
        print(
            f"{net:<14} {BATCHES[net]:>5} {eager.median * 1e3:>10.2f} {fused.median * 1e3:>10.2f} "
            f"{ours.median * 1e3:>10.2f} {ours.median / eager.median:>6.3f} {ours.median / fused.median:>6.3f}  "
            f"{ours.last['layout']}",
            flush=True,
        )


def serve(kind: str, name: str, batch: str, threads: str, folder: str, exchange: str) -> None:
    """A process of one side: it waits for numbers of iterations on its pipe."""
    torch.set_num_threads(int(threads))
    rank = int(os.environ.get("OMPI_COMM_WORLD_RANK", os.environ.get("RANK", "0")))
    with (Path(folder) / f"{kind}{rank}").open() as orders:
        rank, (step, layout) = side_of(kind, name, int(batch), exchange)
        serve_turns(orders, step, lambda: {"layout": layout()}, answers=rank == 0)
    if kind in DDP:
        dist.destroy_process_group()


def side_of(kind: str, name: str, batch: int, exchange: str) -> tuple[int, Side]:
    """This process's rank, and its side. Each rank has its part of the batch."""
    if kind == "bpt":
        world = mpi_world()
        rank, size = world.rank, world.size
    else:
        dist.init_process_group("gloo")
        rank, size = dist.get_rank(), dist.get_world_size()
    rows = slice(rank * batch // size, (rank + 1) * batch // size)
    data, label = (tensor[rows] for tensor in batch_of(name, batch))
    if kind in DDP:
        source = solver_source(name, len(data), "CONTIGUOUS")
        return rank, plain_side(source, data, label, kind, DistributedDataParallel)
    source = solver_source(name, batch, "AUTO")
    source.param.parallel_param.MergeFrom(pb.ParallelParameter(exchange=exchange))
    return rank, bpt_side(source, data, label, world)
