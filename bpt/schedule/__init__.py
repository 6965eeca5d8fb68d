"""When: schedulers yield the instructions of a rank's iteration. Arithmetic only: no tensors, no MPI."""
