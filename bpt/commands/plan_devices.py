"""Which devices ``bpt plan`` plans for: those of its flag, of the solver, or so many that are alike."""

from __future__ import annotations

from dataclasses import replace

from bpt.errors import UsageError
from bpt.proto.solver import SolverSource
from bpt.solvers.pipelines.devices import count_devices

FIELD = ("parallel_param", "pipeline_param", "devices")


def choose_devices(source: SolverSource, devices: str) -> tuple[SolverSource, int]:
    """Let the solver name the devices of the flag ``--devices``, if it was given.

    Returns:
        The solver, and the number of stages: of the devices, if the flag tells them, or the solver does and says
        nothing of stages; else num_stages. 0: nothing is known of devices.

    Raises:
        UsageError: the flag is a number below 1.
        PrototxtError, FileError: a file of devices is missing or wrong.
    """
    parallel = source.param.parallel_param
    if devices.lstrip("+-").isdigit():
        if int(devices) < 1:
            raise UsageError(f"--devices {devices}: there must be at least 1")
        parallel.pipeline_param.ClearField("devices")
        parallel.num_stages = int(devices)
    elif devices:
        parallel.pipeline_param.devices = devices
        # What is wrong with the file is not the solver's fault.
        source = replace(source, origins={way: place for way, place in source.origins.items() if way != FIELD})
        parallel.num_stages = count_devices(source)
    elif parallel.num_stages <= 1 and parallel.pipeline_param.devices:
        parallel.num_stages = count_devices(source)
    return source, parallel.num_stages if parallel.num_stages > 1 or devices else 0
