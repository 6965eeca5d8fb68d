"""Placement: which device runs which layers of a net (Hybrid paper, section 3.1). Arithmetic only: no tensors, no MPI.

Section 3.1.1 cuts the net into partitions. Section 3.1.2 places them by GABRA, a genetic algorithm (Algorithms 1 and
2), with the profit of Eq. 3 to 9. STEP_TIME, BLOCK and EXACT go beyond the paper.

Read the files in this order:

1. ``problem.py`` and ``partition.py``: layers, devices and partitions.
2. ``loads.py``, ``partition_crossings.py`` and ``objective.py``: what a placement costs, and its score.
3. ``gabra.py`` and ``improve.py``: the genetic algorithm, and its local search.
4. ``spans.py`` and ``block.py``: the best cut into consecutive runs.
5. ``exact.py``: the best placement of all, by branch and bound.
6. ``device_placement.py``: the allocators by name.
"""

from bpt.parallel.pipeline.placement.device_placement import allocate
from bpt.parallel.pipeline.placement.problem import Cost, Crossing, Device, DeviceLink, Placement, Problem, problem_of

__all__ = ["Cost", "Crossing", "Device", "DeviceLink", "Placement", "Problem", "allocate", "problem_of"]
