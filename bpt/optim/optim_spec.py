"""OptimSpec: what of a solver's text says how weights follow from gradients."""

from __future__ import annotations

from dataclasses import dataclass

from bpt.proto import bpt_pb2 as pb

_TEXT = pb.SolverParameter()  # its defaults are float32, as all numbers of texts are


@dataclass(frozen=True)
class OptimSpec:
    """The update rule, the learning rate, and what becomes of gradients before it. Fields are the text's, as in Caffe.

    Attributes:
        given: the names of those that the text sets.
    """

    type: str = "SGD"
    base_lr: float = 0.0
    lr_policy: str = ""
    gamma: float = 0.0
    power: float = 0.0
    stepsize: int = 0
    stepvalue: tuple[int, ...] = ()
    max_iter: int = 0
    momentum: float = 0.0
    momentum2: float = _TEXT.momentum2
    rms_decay: float = _TEXT.rms_decay
    delta: float = _TEXT.delta
    weight_decay: float = 0.0
    regularization_type: str = "L2"
    clip_gradients: float = -1.0
    iter_size: int = 1
    given: frozenset[str] = frozenset()
