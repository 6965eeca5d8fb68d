"""Jobs of the outer layer over MPI."""

from __future__ import annotations

import math
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bpt.train.outer.report import RunRecord
from tests.support.mpirun import all_end, in_session, started
from tests.support.paths import GOLDEN

SAMPLES = 200


NET = """
name: "digits"
layer { name: "digits" type: "Data" top: "data" top: "label" include { phase: TRAIN } transform_param { scale: 0.004 }
  data_param { source: "digits_train_lmdb" batch_size: 10 backend: LMDB shuffle: true } }
layer { name: "digits" type: "Data" top: "data" top: "label" include { phase: TEST } transform_param { scale: 0.004 }
  data_param { source: "digits_test_lmdb" batch_size: 25 backend: LMDB } }
layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip"
  inner_product_param { num_output: 10 weight_filler { type: "xavier" } } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }
"""


SOLVER = """
net: "net.prototxt" test_iter: 4 test_interval: 1000 base_lr: 0.05 momentum: 0.9 lr_policy: "fixed" max_iter: 100
snapshot_prefix: "digits" random_seed: 3 parallel_param { exchange: AGWU balance: IDPA }
"""


TRAIN = "train --solver=solver.prototxt"


def write(folder: Path, data: bool = True, net: str = NET) -> Path:
    """Put the texts, and the data, into a new folder."""
    folder.mkdir(exist_ok=True)
    (folder / "net.prototxt").write_text(net)
    (folder / "solver.prototxt").write_text(SOLVER)
    for name in ("digits_train_lmdb", "digits_test_lmdb") if data else ():
        shutil.copytree(GOLDEN / "lmdb" / name, folder / name)
    return folder


def program(*lines: str) -> list[str]:
    return [sys.executable, "-m", "tests.mpi.outer_ranks", *lines]


def texts(log: str) -> list[str]:
    """What the lines of the log say, without time and place."""
    return [re.sub(r"^[IWE]\d{4} [\d:.]+ +\d+ \S+\] ", "", line) for line in log.splitlines()]


def has_learnt(record: RunRecord) -> bool:
    """Far from guessing, whose loss is log 10; how far exactly depends on which worker happened to come when."""
    last = record.tests[-1]
    return last.loss < 0.75 * math.log(10) and last.auc > 0.8


class Running:
    """Ranks that train, and what they have told so far."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.log: list[str] = []

    def until(self, words: str) -> None:
        """Read until a line begins with ``words``."""
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self.log += texts(line)
            if self.log[-1].startswith(words):
                return
        pytest.fail(f"no {words!r} in\n" + "\n".join(self.log[-50:]))

    def signal(self, rank: int, number: signal.Signals) -> None:
        """Send a signal to the process of a rank."""
        mark = f"OMPI_COMM_WORLD_RANK={rank}".encode()
        environments = {pid: Path(f"/proc/{pid}/environ").read_bytes() for pid in in_session(self._process.pid)}
        (process,) = [pid for pid, content in environments.items() if mark in content.split(b"\0")]
        os.kill(process, number)

    def end(self) -> int:
        """Read to the end, see that no process is left, and return the exit status."""
        assert self._process.stderr is not None
        self.log += texts(self._process.stderr.read())
        status = self._process.wait()
        all_end(self._process.pid, seconds=60)
        return status


@contextmanager
def running(ranks: int, *lines: str, options: tuple[str, ...] = ()) -> Iterator[Running]:
    """``outer_ranks`` while it runs; whatever hangs is ended after a while."""
    with started(ranks, program(*lines), options=options) as process:
        timer = threading.Timer(120, process.kill)
        timer.start()
        try:
            yield Running(process)
        finally:
            timer.cancel()
