"""The only way to another rank: communicators whose methods bear MPI's names."""
