"""What a user is told when devices have too little memory."""

from __future__ import annotations

from dataclasses import replace

from bpt.errors import PrototxtError
from bpt.placement.loads import Ints, Loads, lacking
from bpt.proto import bpt_pb2 as pb

MIB = 2**20
FRUGAL = (pb.PipelineParameter.ONE_F_ONE_B, pb.PipelineParameter.SEQUENTIAL)
"""The schedules that may keep fewer blobs alive, and give the curve of one process."""


class LittleMemoryError(PrototxtError):
    """No placement was found that fits into the memories of the devices."""


def infeasible(loads: Loads, genes: Ints, what: str) -> LittleMemoryError:
    """The error that names the device which lacks most memory.

    Args:
        genes: (n,) the device of each partition: the placement that comes nearest to fitting.
        what: how the message begins.
    """
    held = loads.held(genes[None])[0]
    lack = lacking(held, loads.memory)
    device = int(lack.argmax())
    assert lack[device] > 0, held
    schedules = _frugal(loads, genes)
    more = "" if (genes == device).sum() == 1 else "more stages, "  # what stays together cannot be spread
    return LittleMemoryError(
        f"{what}: device {loads.problem.devices[device].name} (stage {device}) lacks {_mib(lack[device])} of memory: "
        f"its layers need {_mib(held[device])}, it has {_mib(loads.memory[device])}; take "
        f"{f'schedule: {schedules}, ' if schedules else ''}{more}smaller batches or a device with more memory"
    )


def _frugal(loads: Loads, genes: Ints) -> str:
    """The schedules under which the placement would fit: ``ONE_F_ONE_B or SEQUENTIAL``."""
    problem = loads.problem
    if problem.rule == pb.PipelineParameter.DELAYED:  # chosen for its curve
        return ""

    def fits(rule: int) -> bool:
        held = Loads(replace(problem, rule=rule), loads.starts).held(genes[None])[0]
        return not lacking(held, loads.memory).any()

    names = [pb.PipelineParameter.Schedule.Name(rule) for rule in FRUGAL if fits(rule)]
    return " or ".join(names)


def _mib(size: float) -> str:
    return f"{size / MIB:,.1f} MiB" if size >= 0.1 * MIB else f"{size:,.0f} bytes"
