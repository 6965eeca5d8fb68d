"""The Python interface, with pycaffe's names and meaning: ``bpt.Net``, ``bpt.get_solver``, ``bpt.load_module``.

A Net runs one layer at a time, so that all blobs and diffs can be looked at and changed (``operator.py``). Arrays
handed out show the net's tensors, and take what is written into them to these (``mirror.py``).
"""

from bpt.pycaffe.blob import Blob
from bpt.pycaffe.modules import load_module
from bpt.pycaffe.mpirun import launch
from bpt.pycaffe.net import Net
from bpt.pycaffe.solver import Solver, get_solver
from bpt.pycaffe.solver_types import (
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
