"""What a user is told when devices have too little memory."""

from __future__ import annotations

from bpt.errors import PrototxtError
from bpt.placement.loads import Ints, Loads, lacking

MIB = 2**20


def infeasible(loads: Loads, genes: Ints, what: str) -> PrototxtError:
    """The error that names the device which lacks most memory.

    Args:
        genes: (n,) the device of each partition: the placement that comes nearest to fitting.
        what: how the message begins.
    """
    held = loads.held(genes[None])[0]
    lack = lacking(held, loads.memory)
    device = int(lack.argmax())
    assert lack[device] > 0, held
    return PrototxtError(
        f"{what}: device {loads.problem.devices[device].name} (stage {device}) lacks {_mib(lack[device])} of memory: "
        f"its layers need {_mib(held[device])}, it has {_mib(loads.memory[device])}; take more stages, smaller batches "
        "or a device with more memory"
    )


def _mib(size: float) -> str:
    return f"{size / MIB:,.1f} MiB" if size >= 0.1 * MIB else f"{size:,.0f} bytes"
