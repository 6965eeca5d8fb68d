"""A process of one side of ``scripts/bench ddp``: waits for numbers of iterations on its pipe, trains, and answers."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from bpt.comm.launch import world as mpi_world
from bpt.proto import bpt_pb2 as pb
from scripts.benches.sides import Side, batch_of, bpt_side, plain_side, solver_source


def side_of(kind: str, name: str, batch: int, exchange: str) -> tuple[int, Side]:
    """This process's rank, and its side. Each rank has its part of the batch."""
    if kind == "bpt":
        world = mpi_world()
        data, label = batch_of(name, batch)
        rows = slice(world.rank * batch // world.size, (world.rank + 1) * batch // world.size)
        source = solver_source(name, batch, "AUTO")
        source.param.parallel_param.MergeFrom(pb.ParallelParameter(exchange=exchange))
        return world.rank, bpt_side(source, data[rows], label[rows], world)
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    data, label = batch_of(name, batch)
    rows = slice(rank * batch // size, (rank + 1) * batch // size)
    source = solver_source(name, len(data[rows]), "CONTIGUOUS")
    return rank, plain_side(source, data[rows], label[rows], DistributedDataParallel)


def main() -> None:
    kind, name, batch, threads, folder, exchange = sys.argv[1:]
    torch.set_num_threads(int(threads))
    rank = int(os.environ.get("OMPI_COMM_WORLD_RANK", os.environ.get("RANK", "0")))
    with (Path(folder) / f"{kind}{rank}").open() as orders:
        rank, (step, layout) = side_of(kind, name, int(batch), exchange)
        for line in orders:
            seconds = []
            for _ in range(int(line)):
                start = time.perf_counter()
                step()
                seconds.append(time.perf_counter() - start)
            if rank == 0:
                print(json.dumps({"seconds": seconds, "layout": layout()}), flush=True)
    if kind == "ddp":
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
