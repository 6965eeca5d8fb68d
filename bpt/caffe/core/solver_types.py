"""A class for each solver type; as in pycaffe, it replaces the ``type`` in the solver's text."""

from __future__ import annotations

from bpt.caffe.core.solver import Solver


class SGDSolver(Solver):
    """Stochastic gradient descent with momentum."""

    rule = "SGD"


class NesterovSolver(Solver):
    """Nesterov's accelerated gradient."""

    rule = "Nesterov"


class AdaGradSolver(Solver):
    """AdaGrad (Duchi et al., 2011)."""

    rule = "AdaGrad"


class RMSPropSolver(Solver):
    """RMSProp (Tieleman and Hinton, 2012)."""

    rule = "RMSProp"


class AdaDeltaSolver(Solver):
    """AdaDelta (Zeiler, 2012)."""

    rule = "AdaDelta"


class AdamSolver(Solver):
    """Adam (Kingma and Ba, 2015)."""

    rule = "Adam"
