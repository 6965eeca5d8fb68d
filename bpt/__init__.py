"""bpt: a Caffe-style, config-driven trainer for convolutional networks.

From Python, with pycaffe's names: ``bpt.Net``, ``bpt.get_solver``, ``bpt.TRAIN``, ``bpt.TEST``,
``bpt.NetSpec`` with ``bpt.L`` and ``bpt.P`` to write networks; and ``bpt.load_module``, a network text as a
``torch.nn.Module``. The command line is ``bpt``; see ``bpt --help``.
"""

from __future__ import annotations

import importlib
import logging
from typing import TYPE_CHECKING, Any

from bpt.version import VERSION

__version__ = VERSION

# A library prints nothing; the program that uses it configures logging.
logging.getLogger("bpt").addHandler(logging.NullHandler())

TRAIN, TEST = 0, 1  # the values of the schema's enum Phase

if TYPE_CHECKING:
    from bpt.netspec import L, NetSpec, P
    from bpt.pycaffe import Net, Solver, get_solver, launch, load_module

# Loaded when first asked for, so that "bpt --help" and "import bpt" do not wait for torch.
_HOMES = {
    "L": "bpt.netspec",
    "P": "bpt.netspec",
    "NetSpec": "bpt.netspec",
    "Net": "bpt.pycaffe",
    "Solver": "bpt.pycaffe",
    "get_solver": "bpt.pycaffe",
    "launch": "bpt.pycaffe",
    "load_module": "bpt.pycaffe",
}

_MODULES = frozenset({"caffe", "errors"})

__all__ = ["TEST", "TRAIN", "L", "Net", "NetSpec", "P", "Solver", "get_solver", "launch", "load_module"]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"bpt.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'bpt' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    """The public face: subpackages that happen to be loaded are not of it."""
    return sorted([*__all__, "__doc__", "__name__", "__version__"])
