"""OptimSpec: the part of a solver's text that defines the update of weights by gradients."""

from __future__ import annotations

from dataclasses import dataclass

from bpt.config.proto import bpt_pb2 as pb
from bpt.config.schema_specs import SCHEMA, spec_of


@dataclass(frozen=True)
@spec_of(pb.CosineParameter)
class CosineSpec:
    """The restarts of ``lr_policy: "cosine"``."""

    period: int = SCHEMA
    growth: int = SCHEMA


@dataclass(frozen=True)
@spec_of(pb.OneCycleParameter)
class OneCycleSpec:
    """The cycle of ``lr_policy: "onecycle"``."""

    rising: float = SCHEMA
    div_factor: float = SCHEMA
    final_div_factor: float = SCHEMA


@dataclass(frozen=True)
@spec_of(pb.AverageParameter)
class AverageSpec:
    """The average of the weights over iterations."""

    kind: int = SCHEMA
    decay: float = SCHEMA
    start: int = SCHEMA
    interval: int = SCHEMA


@dataclass(frozen=True)
@spec_of(pb.SolverParameter)
class OptimSpec:
    """The update rule, the learning rate, and the treatment of gradients; fields are named as in Caffe.

    Attributes:
        given: the names of those that the text sets.
    """

    type: str = SCHEMA
    base_lr: float = SCHEMA
    lr_policy: str = SCHEMA
    gamma: float = SCHEMA
    power: float = SCHEMA
    stepsize: int = SCHEMA
    stepvalue: tuple[int, ...] = SCHEMA
    max_iter: int = SCHEMA
    momentum: float = SCHEMA
    momentum2: float = SCHEMA
    rms_decay: float = SCHEMA
    delta: float = SCHEMA
    weight_decay: float = SCHEMA
    regularization_type: str = SCHEMA
    clip_gradients: float = SCHEMA
    iter_size: int = SCHEMA
    rampup_interval: int = SCHEMA
    rampup_lr: float = SCHEMA
    warmup_iter: int = SCHEMA
    warmup_start_lr: float = SCHEMA
    min_lr: float = SCHEMA
    plateau_winsize: tuple[int, ...] = SCHEMA
    stagelr: tuple[float, ...] = SCHEMA
    stageiter: tuple[int, ...] = SCHEMA
    cosine_param: CosineSpec = SCHEMA
    onecycle_param: OneCycleSpec = SCHEMA
    momentum_policy: str = SCHEMA
    max_momentum: float = SCHEMA
    momentum_power: float = SCHEMA
    weight_decay_policy: str = SCHEMA
    weight_decay_power: float = SCHEMA
    max_weight_decay: float = SCHEMA
    larc: bool = SCHEMA
    larc_policy: str = SCHEMA
    larc_eta: float = SCHEMA
    larc_turbo: bool = SCHEMA
    local_lr_auto: bool = SCHEMA
    local_gw_ratio: float = SCHEMA
    average_param: AverageSpec = SCHEMA
    given: frozenset[str] = frozenset()

    @property
    def turbo(self) -> bool:
        """Whether rates by layer depend on how well gradients keep their direction."""
        return self.larc and self.larc_turbo

    @property
    def averages(self) -> bool:
        """Whether the weights are averaged."""
        return "average_param" in self.given
