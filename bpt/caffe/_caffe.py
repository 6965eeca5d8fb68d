"""The names that pycaffe imports from Caffe's compiled module: log, timer, layer types, several GPUs."""

from __future__ import annotations

import logging
import time

from bpt.apps.arguments import checked_count, checked_kind
from bpt.base.errors import UserError
from bpt.base.log import start_logging
from bpt.caffe.core import (
    AdaDeltaSolver,
    AdaGradSolver,
    AdamSolver,
    NesterovSolver,
    Net,
    RMSPropSolver,
    SGDSolver,
    get_solver,
)
from bpt.caffe.core.mode import set_device, set_mode_cpu, set_mode_gpu, set_random_seed
from bpt.nn.layers import LAYERS
from bpt.nn.layers.python_pycaffe import PycaffeLayer as Layer

__all__ = [
    "NCCL",
    "AdaDeltaSolver",
    "AdaGradSolver",
    "AdamSolver",
    "Layer",
    "NesterovSolver",
    "Net",
    "RMSPropSolver",
    "SGDSolver",
    "Timer",
    "get_solver",
    "has_nccl",
    "init_log",
    "layer_type_list",
    "log",
    "set_device",
    "set_mode_cpu",
    "set_mode_gpu",
    "set_multiprocess",
    "set_random_seed",
    "set_solver_count",
    "set_solver_rank",
    "solver_count",
    "solver_rank",
]

LOG = logging.getLogger("bpt")
_LEVELS = (logging.INFO, logging.WARNING, logging.ERROR, logging.CRITICAL)  # glog's, by number
_MANY = "start it by mpirun -n {ranks} bpt train --solver …, one rank a GPU"


def init_log(level: int = 0, to_stderr: bool = True) -> None:
    """Write Caffe's log lines to stderr.

    Args:
        level: the lowest level to write, in glog's numbers: 0 INFO, 1 WARNING, 2 ERROR, 3 FATAL.
        to_stderr: if False, write nothing until the program configures logging itself.
    """
    if level not in range(len(_LEVELS)):
        raise UserError(f"init_log: the level is 0 (INFO) to 3 (FATAL), not {level!r}")
    start_logging(_LEVELS[level], first=to_stderr)


def log(message: str) -> None:
    """Write a line to the log."""
    LOG.info("%s", message)


def layer_type_list() -> list[str]:
    """Return the names of all layer types."""
    return list(LAYERS)


class Timer:
    """Stopwatch: ``ms`` is the time in milliseconds from ``start`` to ``stop`` or, while it runs, to now."""

    def __init__(self) -> None:
        self._start = self._stop = 0.0
        self._runs = False

    def start(self) -> None:
        self._start, self._runs = time.perf_counter(), True

    def stop(self) -> None:
        if self._runs:
            self._stop, self._runs = time.perf_counter(), False

    @property
    def ms(self) -> float:
        return 1e3 * ((time.perf_counter() if self._runs else self._stop) - self._start)


def has_nccl() -> bool:
    """Return ``False``: ranks of bpt communicate by MPI, and the Python interface trains in one process."""
    return False


class NCCL:
    """Placeholder for Caffe's NCCL class; every use raises a UserError that names ``mpirun`` as the remedy."""

    def __init__(self, *arguments: object) -> None:
        raise _one_process("caffe.NCCL is not there", 2)

    @staticmethod
    def new_uid() -> str:
        raise _one_process("caffe.NCCL is not there", 2)


def solver_count() -> int:
    """Return 1: no solver of another process trains with this one."""
    return 1


def solver_rank() -> int:
    """Return 0, the rank of the only solver."""
    return 0


def set_solver_count(count: int) -> None:
    if checked_count(count, "set_solver_count: the number of solvers") != 1:
        raise _one_process(f"set_solver_count({count})", count)


def set_solver_rank(rank: int) -> None:
    if checked_count(rank, "set_solver_rank: the rank") != 0:
        raise _one_process(f"set_solver_rank({rank})", rank + 1)


def set_multiprocess(several: bool) -> None:
    if checked_kind(several, int, "set_multiprocess: what is given"):
        raise _one_process("set_multiprocess(True)", 2)


def _one_process(what: str, ranks: int) -> UserError:
    return UserError(f"{what}: the Python interface trains in one process; {_MANY.format(ranks=ranks)}")
