"""Training on many ranks gives the weights of one process: a row is a whole configuration.

In double precision, gradients of the first iteration and weights after 10, within 1e-5 of the parameter's largest
element. In single precision the same for gradients, up to rounding; weights after 10 iterations are not compared, since
with such small batches most of these nets are so unstable that the order of a sum decides where they go.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest

from bpt.data.datum import encode_datum
from bpt.data.lmdb_file import LmdbWriter
from scripts.make_synthetic import images
from tests.mpi.check_ranks import SIDES
from tests.support.mpirun import mpirun, needs_mpi

TOLERANCE = 1e-5
ROUNDING = 3e-5
DRIVER = Path(__file__).with_name("check_ranks.py")
SYNC = "sync_batch_norm: true "
PEERS = "num_shards: {} "
MASTER = "num_shards: {} fc_param {{ scheme: MASTER_SLAVE }} "
TREE = "exchange: TREE "
RING = "exchange: RING "
UNEVEN = "balance: STATIC "
CGDP = "exchange: CGDP cgdp_param {{ chunk_size: {} }} "
SEARCHED = "exchange: CGDP cgdp_param { interval: 1 step: 2 range: 2 } "
MODELLED = "exchange: CGDP cgdp_param { chunking: MODEL interval: 2 } "
ALL = 1000  # more layers than any net here has: one chunk
SGD = "momentum: 0.9 weight_decay: 0.0005 "
ADAM = 'type: "Adam" momentum: 0.9 momentum2: 0.999 base_lr: 0.001 '

Row = tuple[str, int, str, str]  # net, batch size, fields of the solver, of its parallel_param

ROWS: dict[int, list[Row]] = {
    1: [("lenet", 10, SGD, ""), ("resnet20", 6, SGD, SYNC)],
    2: [
        ("lenet", 11, SGD + "iter_size: 2 clip_gradients: 0.5", ""),
        ("lenet", 10, SGD + "iter_size: 2", TREE),
        ("lenet", 11, SGD + "iter_size: 2 clip_gradients: 0.5", RING),
        ("lenet", 10, SGD, UNEVEN),
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
        ("lenet", 10, ADAM, CGDP.format(1) + MASTER.format(2)),
        ("cifar10_quick", 3, SGD, CGDP.format(1)),  # a rank without samples
        ("resnet20", 3, SGD, SYNC + CGDP.format(5)),  # a rank without samples
    ],
}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    for net, side in SIDES.items():
        shape = (1 if net == "lenet" else 3, side, side)
        with LmdbWriter(folder / f"{net}_lmdb") as writer:
            for image, label in images(23, shape, 10, seed=1, part=0):
                writer.put(encode_datum(image, label))
    return folder


QUICK = frozenset({"lenet"})


def jobs(rows: dict[int, list[Row]], quick_ranks: Collection[int]) -> list[Any]:
    """What ``parametrize`` wants: the rows of each number of ranks; large nets, and all but ``quick_ranks``, are slow.

    Ranks that are threads train most of these combinations as well: tests/train/runtime, tests/train/solver/pipelines.
    """
    found = []
    for ranks, of_ranks in rows.items():
        quick = [row for row in of_ranks if row[0] in QUICK]
        large = [row for row in of_ranks if row[0] not in QUICK]
        marks = [] if ranks in quick_ranks else [pytest.mark.slow]
        found.append(pytest.param(ranks, quick, id=f"{ranks} ranks", marks=marks))
        if large:
            found.append(pytest.param(ranks, large, id=f"{ranks} ranks, large nets", marks=pytest.mark.slow))
    return found


@needs_mpi
@pytest.mark.parametrize(("ranks", "rows"), jobs(ROWS, (3,)))
def test_many_ranks_give_the_weights_of_one(ranks: int, rows: list[Row], data: Path) -> None:
    check(ranks, rows, data)


@needs_mpi
@pytest.mark.parametrize(("ranks", "rows"), jobs(CGDP_ROWS, ()))
def test_cgdp_gives_the_weights_of_one(ranks: int, rows: list[Row], data: Path) -> None:
    check(ranks, rows, data)


def check(ranks: int, rows: list[Row], data: Path) -> None:
    done = mpirun(ranks, [sys.executable, str(DRIVER), str(data), json.dumps(rows)], timeout=300)
    assert done.returncode == 0, done.stderr
    results = [json.loads(line) for line in done.stdout.splitlines()]
    assert [tuple(result[:4]) for result in results] == rows
    wrong = [
        (net, batch, solver, parallel, name, gradient, weight, rounded)
        for net, batch, solver, parallel, worst in results
        for name, (gradient, weight, rounded) in worst.items()
        if max(gradient, weight) > TOLERANCE or rounded > ROUNDING
    ]
    assert not wrong
