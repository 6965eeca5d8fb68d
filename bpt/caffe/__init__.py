"""All of pycaffe's names: with ``import bpt.caffe as caffe``, scripts that were written for Caffe run.

One line makes ``import caffe`` find this package, in the script and in all modules that it imports::

    import bpt.caffe; bpt.caffe.install()

``python -m bpt.caffe script.py`` does the same for a script that must not change. This package only collects the
names: ``bpt.caffe.core`` defines nets and solvers, ``bpt.caffe.netspec`` defines NetSpec. The guide is
``docs/pycaffe.md``.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from bpt.nn.layers.caffe_import import install

__version__ = "1.1.0"
"""The version of the Caffe that has these names."""

TRAIN, TEST = 0, 1

if TYPE_CHECKING:
    from bpt.caffe import classifier, coord_map, detector, draw, io, net_spec, proto, pycaffe
    from bpt.caffe._caffe import (
        NCCL,
        Timer,
        has_nccl,
        init_log,
        layer_type_list,
        log,
        set_multiprocess,
        set_solver_count,
        set_solver_rank,
        solver_count,
        solver_rank,
    )
    from bpt.caffe.classifier import Classifier
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
    from bpt.caffe.detector import Detector
    from bpt.caffe.net_spec import NetSpec, layers, params, to_proto
    from bpt.nn.layers.python_pycaffe import PycaffeLayer as Layer

# Loaded at the first access, so that a Python layer which needs only caffe.Layer does not wait for the rest.
_MODULES = frozenset({"classifier", "coord_map", "detector", "draw", "io", "net_spec", "proto", "pycaffe"})
_NAMES = {
    "bpt.caffe._caffe": (
        "NCCL", "Timer", "has_nccl", "init_log", "layer_type_list", "log", "set_multiprocess", "set_solver_count",
        "set_solver_rank", "solver_count", "solver_rank",
    ),
    "bpt.caffe.classifier": ("Classifier",),
    "bpt.caffe.detector": ("Detector",),
    "bpt.caffe.net_spec": ("NetSpec", "layers", "params", "to_proto"),
    "bpt.caffe.core": (
        "AdaDeltaSolver", "AdaGradSolver", "AdamSolver", "NesterovSolver", "Net", "RMSPropSolver", "SGDSolver",
        "get_solver",
    ),
    "bpt.caffe.core.mode": ("set_device", "set_mode_cpu", "set_mode_gpu", "set_random_seed"),
}  # fmt: skip
_HOMES = {name: home for home, names in _NAMES.items() for name in names}

__all__ = [
    "NCCL",
    "TEST",
    "TRAIN",
    "AdaDeltaSolver",
    "AdaGradSolver",
    "AdamSolver",
    "Classifier",
    "Detector",
    "Layer",
    "NesterovSolver",
    "Net",
    "NetSpec",
    "RMSPropSolver",
    "SGDSolver",
    "Timer",
    "classifier",
    "coord_map",
    "detector",
    "draw",
    "get_solver",
    "has_nccl",
    "init_log",
    "install",
    "io",
    "layer_type_list",
    "layers",
    "log",
    "net_spec",
    "params",
    "proto",
    "pycaffe",
    "set_device",
    "set_mode_cpu",
    "set_mode_gpu",
    "set_multiprocess",
    "set_random_seed",
    "set_solver_count",
    "set_solver_rank",
    "solver_count",
    "solver_rank",
    "to_proto",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"bpt.caffe.{name}")
    if name == "Layer":
        return importlib.import_module("bpt.nn.layers.python_pycaffe").PycaffeLayer
    if name not in _HOMES:
        raise AttributeError(f"module 'caffe' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    """Return pycaffe's names, without the helpers of this module."""
    return sorted([*__all__, "__doc__", "__name__", "__version__"])
