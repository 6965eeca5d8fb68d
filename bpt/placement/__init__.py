"""Which device runs which layers of a net. Arithmetic only: no tensors, no MPI."""

from bpt.placement.allocate import allocate
from bpt.placement.costs import Cost
from bpt.placement.placement import Placement
from bpt.placement.problem import Crossing, Device, Link, Problem, problem_of

__all__ = ["Cost", "Crossing", "Device", "Link", "Placement", "Problem", "allocate", "problem_of"]
