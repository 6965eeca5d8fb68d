"""A rank of the calibration of ``scripts/bench hybrid``: costs of layers on this host, and the link between two.

All ranks measure at the same time, as they compute in a pipeline: cores share caches and memory.
"""

from __future__ import annotations

import time
from statistics import median
from typing import Any

import numpy as np

from bpt.config.plan.resolve import resolve
from bpt.config.proto.sources import read_solver
from bpt.perf.planner.measure import measure
from bpt.system.comm.base import Buffer, Communicator
from bpt.system.device import CPU

SMALL, LARGE = 64, 2**22  # bytes of a message
REPEATS, PAUSE = 20, 0.02  # of messages; seconds between them, so that a slow host has its share of the processor
TAG = 0


def work(order: dict[str, Any], world: Communicator) -> dict[str, Any]:
    """A rank: its host and seconds of a batch, and what a message takes.

    Args:
        order: ``solver`` and ``set``, its text and snippets laid over it; ``iterations``; ``costs``, a path for them to
            which the rank's number is added.

    Returns:
        ``hosts``; ``forward``, ``backward`` and ``update`` seconds, each by rank; ``latency`` in seconds and
        ``bandwidth`` in bytes a second.
    """
    plan = resolve(read_solver(order["solver"], order["set"]))
    world.Barrier()
    costs = measure(plan, CPU, order["iterations"], f"{order['costs']}.{world.rank}")
    world.Barrier()
    small, large = (round_trip(world, np.zeros(size, np.uint8)) / 2 for size in (SMALL, LARGE))
    seen = world.allgather((world.host, costs.forward, costs.backward, costs.update))
    hosts, forward, backward, update = zip(*seen, strict=True)
    return {
        "hosts": hosts,
        "forward": forward,
        "backward": backward,
        "update": update,
        "latency": small,
        "bandwidth": (LARGE - SMALL) / max(large - small, 1e-9),
    }


def round_trip(world: Communicator, buffer: Buffer) -> float:
    """Seconds that ``buffer`` takes from rank 0 to rank 1 and back; a collective call."""
    times = []
    for _ in range(REPEATS):
        world.Barrier()
        time.sleep(PAUSE)
        start = time.perf_counter()
        if world.rank == 0:
            world.Send(buffer, 1, TAG)
            world.Recv(buffer, 1, TAG)
        elif world.rank == 1:
            world.Recv(buffer, 0, TAG)
            world.Send(buffer, 0, TAG)
        times.append(time.perf_counter() - start)
    return median(times)
