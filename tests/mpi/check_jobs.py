"""Jobs that train on many ranks and are compared with one process."""

from __future__ import annotations

import json
import sys
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest

from tests.support.mpirun import mpirun

TOLERANCE = 1e-5


ROUNDING = 3e-5


DRIVER = Path(__file__).with_name("check_ranks.py")


SYNC = "sync_batch_norm: true "


TREE = "exchange: TREE "


CGDP = "exchange: CGDP cgdp_param {{ chunk_size: {} }} "


SGD = "momentum: 0.9 weight_decay: 0.0005 "


ADAM = 'type: "Adam" momentum: 0.9 momentum2: 0.999 base_lr: 0.001 '


Row = tuple[str, int, str, str]  # net, batch size, fields of the solver, of its parallel_param


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


def check(ranks: int, rows: list[Row], data: Path) -> None:
    done = mpirun(ranks, [sys.executable, str(DRIVER), str(data), json.dumps(rows)], timeout=300)
    assert done.returncode == 0, done.stderr
    judge(done.stdout, rows)


def judge(stdout: str, rows: list[Row]) -> None:
    """Fail unless what DRIVER has printed of ``rows`` says that many ranks give the weights of one."""
    results = [json.loads(line) for line in stdout.splitlines()]
    assert [tuple(result[:4]) for result in results] == rows
    assert all(result[4] for result in results)
    wrong = [
        (net, batch, solver, parallel, name, gradient, weight, rounded)
        for net, batch, solver, parallel, worst in results
        for name, (gradient, weight, rounded) in worst.items()
        if gradient is None or rounded is None or max(gradient, weight) > TOLERANCE or rounded > ROUNDING
    ]
    assert not wrong
