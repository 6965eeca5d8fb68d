"""Which rank trains how many samples of a batch. Arithmetic only: no tensors, no MPI."""

from bpt.balance.base import Balance
from bpt.balance.static import Static, imbalance
from bpt.balance.uniform import Uniform

__all__ = ["Balance", "Static", "Uniform", "imbalance"]
