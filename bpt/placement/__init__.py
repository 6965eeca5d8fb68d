"""Which device runs which layers of a net. Arithmetic only: no tensors, no MPI."""

from bpt.placement.allocate import allocate
from bpt.placement.problem import Cost, Crossing, Device, Link, Placement, Problem, problem_of

__all__ = ["Cost", "Crossing", "Device", "Link", "Placement", "Problem", "allocate", "problem_of"]
