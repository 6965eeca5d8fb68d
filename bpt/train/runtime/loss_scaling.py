"""The loss scale of a run, by the net's text or by the precision."""

from __future__ import annotations

import logging
import math

import torch

from bpt.base.errors import PrototxtError
from bpt.base.violation import PARALLEL
from bpt.config.plan.run_plan import RunPlan
from bpt.config.precision import Precision
from bpt.engine.optim.loss_scale import FIRST, LossScale
from bpt.train.runtime.parallel import Parallel


def loss_scale(plan: RunPlan, precision: Precision, parallel: Parallel, log: logging.Logger) -> LossScale:
    """Return the loss scale by ``global_grad_scale`` and its ``_adaptive`` form, else a dynamic one under FLOAT16.

    Raises:
        PrototxtError: the text's scale is invalid, or it changes while several batches' coded gradients are under way.
    """
    source = plan.train.source
    given, scale = source.param.HasField("global_grad_scale"), source.param.global_grad_scale
    if not (math.isfinite(scale) and scale > 0):
        where = source.origin("global_grad_scale")
        raise PrototxtError(f"global_grad_scale is {scale:g}; it must be finite and above 0", where)
    dynamic = source.param.global_grad_scale_adaptive or (not given and precision.half == torch.float16)
    codec = plan.parallel_param.compression_param.name
    if dynamic and codec and parallel.is_delayed:
        raise PrototxtError(
            f"codec: {codec} codes true gradients, and under schedule: DELAYED those of several loss scales are under "
            "way at the same time; set global_grad_scale in the net, which stays, or precision: BFLOAT16, which needs "
            "none",
            plan.origin(PARALLEL, "compression_param", "codec"),
        )
    lag = None
    if parallel.is_delayed and parallel.staging:  # backward and the report of the loss are late
        lag = len(parallel.staging.path) + parallel.grid.stages - 1
    made = LossScale(scale if given or not dynamic else FIRST, dynamic, parallel.any_in_step, lag)
    if made.dynamic or made.value != 1:
        log.info("Loss scale: %g%s", made.value, ", dynamic" * dynamic)
    return made
