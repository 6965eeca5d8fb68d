"""The Python interface, with pycaffe's names and meaning: ``bpt.Net``, ``bpt.get_solver``, ``bpt.load_module``.

A Net runs one layer at a time, so that the caller can read and change all blobs and diffs (``operator.py``). The
arrays that it returns mirror the net's tensors: what the caller writes to an array reaches the tensor (``mirror.py``).
"""

from bpt.caffe.core.blob import Blob
from bpt.caffe.core.modules import load_module
from bpt.caffe.core.mpirun import launch
from bpt.caffe.core.net import Net
from bpt.caffe.core.solver import Solver, get_solver
from bpt.caffe.core.solver_types import (
    AdaDeltaSolver,
    AdaGradSolver,
    AdamSolver,
    NesterovSolver,
    RMSPropSolver,
    SGDSolver,
)

__all__ = [
    "AdaDeltaSolver",
    "AdaGradSolver",
    "AdamSolver",
    "Blob",
    "NesterovSolver",
    "Net",
    "RMSPropSolver",
    "SGDSolver",
    "Solver",
    "get_solver",
    "launch",
    "load_module",
]
