"""``scripts/bench mpifc``: the experiments of the MPI-FC paper."""
