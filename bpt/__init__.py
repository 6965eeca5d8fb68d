"""bpt: a Caffe-style, config-driven trainer for convolutional networks.

From Python, with pycaffe's names: ``bpt.Net``, ``bpt.get_solver``, ``bpt.TRAIN``, ``bpt.TEST``,
``bpt.NetSpec`` with ``bpt.L`` and ``bpt.P`` to write networks; and ``bpt.load_module``, a network text as a
``torch.nn.Module``. The command line is ``bpt``; see ``bpt --help``.
"""

from __future__ import annotations

import importlib
import logging
import sys
from typing import TYPE_CHECKING, Any

from bpt.base import errors
from bpt.base.version import VERSION

__version__ = VERSION

# A library prints nothing; the program that uses it configures logging.
logging.getLogger("bpt").addHandler(logging.NullHandler())

TRAIN, TEST = 0, 1  # the values of the schema's enum Phase

if TYPE_CHECKING:
    from bpt.caffe.core import Net, Solver, get_solver, launch, load_module
    from bpt.caffe.netspec import L, NetSpec, P

# Loaded when first asked for, so that "bpt --help" and "import bpt" do not wait for torch.
_HOMES = {
    "L": "bpt.caffe.netspec",
    "P": "bpt.caffe.netspec",
    "NetSpec": "bpt.caffe.netspec",
    "Net": "bpt.caffe.core",
    "Solver": "bpt.caffe.core",
    "get_solver": "bpt.caffe.core",
    "launch": "bpt.caffe.core",
    "load_module": "bpt.caffe.core",
}

# Modules of the public face, and where they are; "import bpt.errors" finds its module in sys.modules.
_MODULES = {"caffe": "bpt.caffe", "errors": "bpt.base.errors"}
sys.modules["bpt.errors"] = errors

__all__ = ["TEST", "TRAIN", "L", "Net", "NetSpec", "P", "Solver", "get_solver", "launch", "load_module"]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(_MODULES[name])
    if name not in _HOMES:
        raise AttributeError(f"module 'bpt' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    """Return the public face: subpackages that happen to be loaded are not of it."""
    return sorted([*__all__, "__doc__", "__name__", "__version__"])
