"""bpt on several ranks against PyTorch's DistributedDataParallel (gloo): same net, same batch, in alternation.

eager  as anyone would write it first: contiguous, torch.optim.SGD
fused  channels-last, torch.optim.SGD(fused=True)
bpt    whose messages are MPI's
gloo   bpt with transport: TORCH_DISTRIBUTED
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
from scripts.benches.harness.arguments import add_nets, explain, some_of
from scripts.benches.harness.launch import environment, mpirun, worker
from scripts.benches.harness.sides import Side, batch_of, bpt_side, plain_side, solver_source
from scripts.benches.harness.turns import Side as Processes
from scripts.benches.harness.turns import compete, serve_turns

HELP = "bpt under mpirun against PyTorch's DistributedDataParallel over gloo"
BATCHES = {"lenet": 64, "cifar10_quick": 100, "alexnet": 16, "resnet20": 64, "googlenet": 8}
ITERATIONS = {"lenet": 40, "cifar10_quick": 8, "alexnet": 2, "resnet20": 6, "googlenet": 2}  # a turn
WARM_UP = 48  # iterations of a side before it is timed
USUAL = ("lenet", "cifar10_quick", "alexnet", "resnet20")
DDP = ("eager", "fused")
OURS = {"bpt": pb.ParallelParameter.MPI, "gloo": pb.ParallelParameter.TORCH_DISTRIBUTED}
RATIOS = (("bpt", "eager"), ("bpt", "fused"), ("gloo", "bpt"))  # those whose sides are measured


def add_arguments(parser: argparse.ArgumentParser) -> None:
    explain(parser, __doc__)
    add_nets(parser, BATCHES, USUAL)
    sides = ",".join((*DDP, "bpt"))
    parser.add_argument("--sides", type=some_of((*DDP, *OURS), "side"), default=sides, help="(default %(default)s)")
    parser.add_argument("--ranks", type=int, default=2, help="processes of each side (default %(default)s)")
    parser.add_argument("--threads", type=int, default=1, help="torch threads of each (default %(default)s)")
    parser.add_argument("--rounds", type=int, default=10, help="turns of each side (default %(default)s)")
    parser.add_argument("--exchange", default="ALLREDUCE", help="bpt's exchange (default %(default)s)")
    parser.add_argument("--engine", default="AUTO", help="bpt's engine: AUTO, CONTIGUOUS or CHANNELS_LAST")


def start(kind: str, net: str, arguments: argparse.Namespace, folder: Path) -> Processes:
    """The processes of one side. They sleep on a pipe each until they are told to train, so that nobody polls."""
    pipes = [folder / f"{kind}{rank}" for rank in range(arguments.ranks)]
    for pipe in pipes:
        os.mkfifo(pipe)
    own_words = [net, str(BATCHES[net]), str(arguments.threads), str(folder), arguments.exchange, arguments.engine]
    words = worker("ddp", kind, *own_words)
    own = environment(arguments.threads)
    if kind in OURS:
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
    ratios = [(one, other) for one, other in RATIOS if {one, other} <= set(arguments.sides)]
    heads = [
        *(f"{kind + ' ms':>10}" for kind in arguments.sides),
        *(f"{one + '/' + other:>10}" for one, other in ratios),
    ]
    print(" ".join([f"{'net':<14} {'batch':>5}", *heads]), " layouts chosen")
    for net in arguments.nets:
        with tempfile.TemporaryDirectory() as folder:
            sides = {kind: start(kind, net, arguments, Path(folder)) for kind in arguments.sides}
            # Warm-up covers the iterations in which bpt chooses layout and algorithms.
            compete(
                list(sides.values()),
                arguments.rounds,
                ITERATIONS[net],
                WARM_UP if ITERATIONS[net] > 2 else WARM_UP // 2,
            )
        cells = [f"{side.median * 1e3:>10.2f}" for side in sides.values()]
        cells += [f"{sides[one].median / sides[other].median:>10.3f}" for one, other in ratios]
        layouts = [str(side.last["layout"]) for kind, side in sides.items() if kind in OURS]
        print(" ".join([f"{net:<14} {BATCHES[net]:>5}", *cells]), "", ", ".join(layouts), flush=True)


def serve(kind: str, name: str, batch: str, threads: str, folder: str, exchange: str, engine: str) -> None:
    """A process of one side: it waits for numbers of iterations on its pipe."""
    torch.set_num_threads(int(threads))
    rank = int(os.environ.get("OMPI_COMM_WORLD_RANK", os.environ.get("RANK", "0")))
    with (Path(folder) / f"{kind}{rank}").open() as orders:
        rank, (step, layout) = side_of(kind, name, int(batch), exchange, engine)
        serve_turns(orders, step, lambda: {"layout": layout()}, answers=rank == 0)
    if kind in DDP:
        dist.destroy_process_group()


def side_of(kind: str, name: str, batch: int, exchange: str, engine: str) -> tuple[int, Side]:
    """This process's rank, and its side. Each rank has its part of the batch."""
    if kind in OURS:
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
    source = solver_source(name, batch, engine)
    source.param.parallel_param.MergeFrom(pb.ParallelParameter(exchange=exchange, transport=OURS[kind]))
    return rank, bpt_side(source, data, label, world)
