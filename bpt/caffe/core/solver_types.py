"""A class for each solver type, which makes its own of any solver's text, as in pycaffe."""

from __future__ import annotations

from bpt.caffe.core.solver import Solver


class SGDSolver(Solver):
    """Stochastic gradient descent with momentum."""

    rule = "SGD"


class NesterovSolver(Solver):
    """Nesterov's accelerated gradient."""

    rule = "Nesterov"


class AdaGradSolver(Solver):
    rule = "AdaGrad"


class RMSPropSolver(Solver):
    rule = "RMSProp"


class AdaDeltaSolver(Solver):
    rule = "AdaDelta"


class AdamSolver(Solver):
    rule = "Adam"
