"""Which device runs which layers of a net. Arithmetic only: no tensors, no MPI."""

from bpt.parallel.pipeline.placement.device_placement import allocate
from bpt.parallel.pipeline.placement.problem import Cost, Crossing, Device, DeviceLink, Placement, Problem, problem_of

__all__ = ["Cost", "Crossing", "Device", "DeviceLink", "Placement", "Problem", "allocate", "problem_of"]
