"""``caffe.pycaffe``: nets and solvers."""

from bpt.caffe._caffe import (
    NCCL,
    AdaDeltaSolver,
    AdaGradSolver,
    AdamSolver,
    NesterovSolver,
    Net,
    RMSPropSolver,
    SGDSolver,
    Timer,
)
from bpt.caffe.core import get_solver

__all__ = [
    "NCCL",
    "AdaDeltaSolver",
    "AdaGradSolver",
    "AdamSolver",
    "NesterovSolver",
    "Net",
    "RMSPropSolver",
    "SGDSolver",
    "Timer",
    "get_solver",
]
