"""TrainOptions: the options of a run that a caller sets besides its plan."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

import torch

from bpt.base.signals import SignalActions
from bpt.config.plan.run_plan import ParallelSpec
from bpt.engine.operator import Operator
from bpt.graph.staging import Staging
from bpt.nn.net import Net
from bpt.system.device import CPU
from bpt.train.runtime.batch_sharing import ReplicaShare

LOG = logging.getLogger("bpt")
MakeOperator = Callable[[Net, torch.device], Operator]


@dataclass(frozen=True)
class TrainOptions:
    """The options of a run that are not in its plan.

    Attributes:
        device: the device to compute on.
        signals: records signals; ``None``: signals keep their usual effect.
        resume: a solver state to continue from; "auto" takes the newest good one under ``snapshot_prefix``, if there is
            one. It has no effect on a run that continues from a ``TrainState``.
        observer: makes the operator of the training net for iterations whose blobs and diffs are observed, and the
            operators of the test nets.
        make_operator: makes the operator of a net, instead of the usual one for ``parallel_param``.
        batch_factor: ratio of a batch to the batch size in the net's text (see Parallel).
        staging: the stages of the nets, and the micro-batches; by default those of the plan's placement.
        replica_share: the share of each batch that this single process trains; by default all of it.
        serves: the settings of the outer layer whose server this run is, if it is one.
        tries_algorithms: whether ``engine: AUTO`` may choose the algorithms of kernels, too.
        log: gets the messages about the nets and their parallelisation.
    """

    device: torch.device = CPU
    signals: SignalActions | None = None
    resume: str = ""
    observer: MakeOperator | None = None
    make_operator: MakeOperator | None = None
    batch_factor: int | None = None
    staging: Staging | None = None
    replica_share: ReplicaShare | None = None
    serves: ParallelSpec | None = None
    tries_algorithms: bool = True
    log: logging.Logger = LOG


DEFAULT_OPTIONS = TrainOptions()
