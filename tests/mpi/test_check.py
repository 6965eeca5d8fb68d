"""Training on many ranks gives the weights of one process: a row is a whole configuration.

In double precision, gradients of the first iteration and weights after 10, within 1e-5 of the parameter's largest
element. In single precision the same for gradients, up to rounding; weights after 10 iterations are not compared, since
with such small batches most of these nets are so unstable that the order of a sum decides where they go.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mpi.check_jobs import ADAM, CGDP, SGD, SYNC, TREE, Row, check, jobs
from tests.support.mpirun import needs_mpi

PEERS = "num_shards: {} "
MASTER = "num_shards: {} fc_param {{ scheme: MASTER_SLAVE }} "
RING = "exchange: RING "
UNEVEN = "balance: STATIC "
SEARCHED = "exchange: CGDP cgdp_param { interval: 1 step: 2 range: 2 } "
MODELLED = "exchange: CGDP cgdp_param { chunking: MODEL interval: 2 } "
ALL = 1000  # more layers than any net here has: one chunk


ROWS: dict[int, list[Row]] = {
    1: [("lenet", 10, SGD, ""), ("resnet20", 6, SGD, SYNC)],
    2: [
        ("lenet", 11, SGD + "iter_size: 2 clip_gradients: 0.5", ""),
        ("lenet", 10, SGD + "iter_size: 2", TREE),
        ("lenet", 11, SGD + "iter_size: 2 clip_gradients: 0.5", RING),
        ("lenet", 10, SGD, UNEVEN),
        ("lenet", 10, SGD, "update: SHARDED "),
        ("cifar10_quick", 9, ADAM, ""),
        ("alexnet", 7, SGD + "clip_gradients: 5", PEERS.format(2)),
        ("alexnet", 7, SGD + "clip_gradients: 5", MASTER.format(2)),
        ("googlenet", 5, SGD, ""),
        ("resnet20", 6, SGD, SYNC),
    ],
    3: [
        ("lenet", 10, SGD + "iter_size: 2", PEERS.format(3)),
        ("lenet", 10, SGD + "iter_size: 2", MASTER.format(3)),
        ("lenet", 10, ADAM, UNEVEN + PEERS.format(3)),
        ("alexnet", 7, SGD, ""),
        ("googlenet", 4, SGD, PEERS.format(3)),
        ("resnet20", 7, SGD, SYNC + TREE),
        ("lenet", 10, SGD, UNEVEN + RING),
        ("resnet20", 7, SGD, SYNC + UNEVEN),
    ],
    4: [
        ("lenet", 10, SGD + "clip_gradients: 0.5", TREE + PEERS.format(2)),
        ("lenet", 10, ADAM, MASTER.format(2)),
        ("lenet", 3, SGD, "batch_scope: REPLICA"),
        ("cifar10_quick", 3, SGD, ""),  # a rank without samples
        ("alexnet", 7, SGD, PEERS.format(2)),
        ("lenet", 10, ADAM, RING + PEERS.format(2)),
        ("cifar10_quick", 3, SGD, RING),  # a rank without samples
        ("resnet20", 3, SGD, SYNC),  # a rank without samples
    ],
}

CGDP_ROWS: dict[int, list[Row]] = {
    1: [("lenet", 10, SGD, CGDP.format(1)), ("resnet20", 6, SGD, SYNC + SEARCHED)],
    2: [
        ("lenet", 11, SGD + "iter_size: 2 clip_gradients: 0.5", CGDP.format(1)),
        ("alexnet", 7, SGD, CGDP.format(2) + PEERS.format(2)),
        ("googlenet", 5, SGD, CGDP.format(5)),
        ("resnet20", 6, SGD, SYNC + SEARCHED),
        ("resnet20", 6, SGD, SYNC + MODELLED),
    ],
    3: [
        ("lenet", 10, ADAM, CGDP.format(2) + UNEVEN),
        ("lenet", 10, SGD + "iter_size: 2", CGDP.format(1) + MASTER.format(3)),
        ("googlenet", 4, SGD, SEARCHED),
        ("resnet20", 7, SGD, SYNC + CGDP.format(ALL)),
    ],
    4: [
        ("lenet", 10, SGD, CGDP.format(ALL) + PEERS.format(2)),
        ("lenet", 10, ADAM, CGDP.format(1) + "update: HOST "),
        ("lenet", 10, ADAM, CGDP.format(1) + MASTER.format(2)),
        ("cifar10_quick", 3, SGD, CGDP.format(1)),  # a rank without samples
        ("resnet20", 3, SGD, SYNC + CGDP.format(5)),  # a rank without samples
    ],
}


@needs_mpi
@pytest.mark.parametrize(("ranks", "rows"), jobs(ROWS, (3,)))
def test_many_ranks_give_the_weights_of_one(ranks: int, rows: list[Row], data: Path) -> None:
    check(ranks, rows, data)


@needs_mpi
@pytest.mark.parametrize(("ranks", "rows"), jobs(CGDP_ROWS, ()))
def test_cgdp_gives_the_weights_of_one(ranks: int, rows: list[Row], data: Path) -> None:
    check(ranks, rows, data)
