"""Which rank trains how many samples of a batch. Arithmetic only: no tensors, no MPI."""

from bpt.parallel.balance.batch_shares import Balance, Static, Uniform, imbalance

__all__ = ["Balance", "Static", "Uniform", "imbalance"]
