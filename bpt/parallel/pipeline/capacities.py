"""The capacities d_j of a pipeline's devices (Hybrid paper, Eq. 3 to 9), as the solver or the cluster gives them.

The unit is the net's work: loads p_i are parts of it, which add up to 1, and a capacity is the part that a device may
get at most. Those of a solver, ``pipeline_param { capacity: 0.5 capacity: 0.3 capacity: 0.2 }``, one a stage, take the
place of those that the nodes of a cluster have.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from bpt.base.errors import PrototxtError
from bpt.parallel.cluster.measured_costs import PATH, error_of_file
from bpt.parallel.pipeline.placement.loads import ROUNDING
from bpt.parallel.pipeline.placement.problem import Device

if TYPE_CHECKING:
    from bpt.config.plan.run_plan import RunPlan

FIELD = (*PATH, "capacity")


def with_capacities(plan: RunPlan, devices: Sequence[Device]) -> tuple[Device, ...]:
    """Return the devices with the capacities that the solver gives; unchanged if it gives none.

    Raises:
        PrototxtError: it gives more or fewer than there are devices, or one that is not above 0; or all together, from
            wherever they are, are less than the net's work.
        FileError: the same, of a file of devices that a flag names.
    """
    given = plan.parallel_param.pipeline_param.capacity
    if not given:
        _check_enough(plan, devices)
        return tuple(devices)
    if len(given) != len(devices):
        raise PrototxtError(
            f"pipeline_param: capacity is given {len(given)} time{'s' * (len(given) != 1)}, but there are "
            f"{len(devices)} stages; give one for each",
            plan.origin(*FIELD),
        )
    for stage, share in enumerate(given):
        if not 0 < share < math.inf:
            raise PrototxtError(
                f"pipeline_param: capacity: {share:g}, of stage {stage}; it must be above 0, where 1 is all of the "
                "net's work",
                plan.origin(*FIELD, stage),
            )
    found = tuple(replace(device, capacity=share) for device, share in zip(devices, given, strict=True))
    _check_enough(plan, found)
    return found


def _check_enough(plan: RunPlan, devices: Sequence[Device]) -> None:
    total = math.fsum(device.capacity for device in devices)
    if total >= 1 - ROUNDING:
        return
    message = (
        f"the capacities add up to {total:g} of the net's work, which is 1: Eq. 6 leaves no placement; give more, "
        f"{1 - total:.4g} at least"
    )
    if plan.parallel_param.pipeline_param.capacity:
        raise PrototxtError(f"pipeline_param: {message}", plan.origin(*FIELD))
    named = plan.parallel_param.pipeline_param.devices
    raise error_of_file(plan, "devices", named, message)
