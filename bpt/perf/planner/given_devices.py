"""The devices of ``bpt plan``: those of its flag, those of the solver, or a number of equal devices."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import NamedTuple

from bpt.base.errors import UsageError
from bpt.config.plan.run_plan import RunPlan
from bpt.config.proto.sources import resolve_path, searched_places
from bpt.parallel.pipeline.devices import count_devices
from bpt.parallel.pipeline.placement.partition import TooManyStagesError

FIELD = ("parallel_param", "pipeline_param", "devices")


class PlanWithDevices(NamedTuple):
    """A plan with devices.

    Attributes:
        plan: the plan.
        stages: the number of devices if the flag gives them, or if the solver gives them without num_stages; otherwise
            num_stages. 0: neither gives a number.
        remarks: the settings of the solver that the flag overrides, in words.
    """

    plan: RunPlan
    stages: int
    remarks: tuple[str, ...] = ()


def choose_devices(plan: RunPlan, devices: str) -> PlanWithDevices:
    """Return the plan with the devices of the flag ``--devices``, if it was given.

    Raises:
        UsageError: the flag is a number below 1, or is neither a number nor a file.
        PrototxtError, FileError: a file of devices is missing or wrong.
    """
    before = plan.parallel_param.num_stages
    if not devices:
        if before <= 1 and plan.parallel_param.pipeline_param.devices:
            plan = plan.with_parallel(num_stages=count_devices(plan))
        stages = plan.parallel_param.num_stages
        return PlanWithDevices(plan, stages if stages > 1 else 0)
    if devices.lstrip("+-").isdigit():
        if int(devices) < 1:
            raise UsageError(f"--devices {devices}: there must be at least 1")
        now = int(devices)
        plan = plan.with_pipeline(devices="")
    else:
        if not os.path.exists(resolve_path(devices, plan.path)):
            raise UsageError(
                f"--devices {devices}: this is neither a number of devices nor a file that describes them; there is no "
                f"such file ({searched_places(devices, plan.path)})"
            )
        # An error in the file must not name a place in the solver.
        origins = {way: place for way, place in plan.origins.items() if way != FIELD}
        plan = replace(plan.with_pipeline(devices=devices), origins=origins)
        now = count_devices(plan)
    plan, remarks = plan.with_parallel(num_stages=now, replica=()), []
    if before > 1 and before != now:
        remarks.append(
            f"--devices {devices}: {now} stage{'s' * (now != 1)}, in place of num_stages: {before} of the solver; to "
            f"train like that, set num_stages: {now}"
        )
    return PlanWithDevices(plan, now, tuple(remarks))


@contextmanager
def naming_devices_flag(devices: str) -> Iterator[None]:
    """Let errors about the number of stages name the flag ``--devices``, if it was given.

    Raises:
        UsageError: a TooManyStagesError was raised in the block.
    """
    try:
        yield
    except TooManyStagesError as error:
        if not devices:
            raise
        raise UsageError(f"--devices {devices}: {error.reason}; give {error.possible} or fewer") from None
