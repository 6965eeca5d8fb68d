"""OptimSpec: the part of a solver's text that defines the update of weights by gradients."""

from __future__ import annotations

from dataclasses import dataclass

from bpt.config.proto import bpt_pb2 as pb

_TEXT = pb.SolverParameter()  # its defaults are float32, as all numbers of texts are


@dataclass(frozen=True)
class CosineSpec:
    """The restarts of ``lr_policy: "cosine"``."""

    period: int = 0
    growth: int = 1


@dataclass(frozen=True)
class OneCycleSpec:
    """The cycle of ``lr_policy: "onecycle"``."""

    rising: float = pb.OneCycleParameter().rising
    div_factor: float = 25.0
    final_div_factor: float = 10000.0


@dataclass(frozen=True)
class AverageSpec:
    """The average of the weights over iterations."""

    kind: int = pb.AverageParameter.EMA
    decay: float = pb.AverageParameter().decay
    start: int = 1
    interval: int = 1


@dataclass(frozen=True)
class OptimSpec:
    """The update rule, the learning rate, and the treatment of gradients; fields are named as in Caffe.

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
    rampup_interval: int = 0
    rampup_lr: float = 0.0
    warmup_iter: int = 0
    warmup_start_lr: float = 0.0
    min_lr: float = 0.0
    plateau_winsize: tuple[int, ...] = ()
    stagelr: tuple[float, ...] = ()
    stageiter: tuple[int, ...] = ()
    cosine_param: CosineSpec = CosineSpec()
    onecycle_param: OneCycleSpec = OneCycleSpec()
    momentum_policy: str = "fixed"
    max_momentum: float = _TEXT.max_momentum
    momentum_power: float = 1.0
    weight_decay_policy: str = "fixed"
    weight_decay_power: float = 1.0
    max_weight_decay: float = 0.0
    larc: bool = False
    larc_policy: str = "scale"
    larc_eta: float = _TEXT.larc_eta
    larc_turbo: bool = False
    local_lr_auto: bool = False
    local_gw_ratio: float = _TEXT.local_gw_ratio
    average_param: AverageSpec = AverageSpec()
    given: frozenset[str] = frozenset()

    @property
    def turbo(self) -> bool:
        """Whether rates by layer depend on how well gradients keep their direction."""
        return self.larc and self.larc_turbo

    @property
    def averages(self) -> bool:
        """Whether the weights are averaged."""
        return "average_param" in self.given
