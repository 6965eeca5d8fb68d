"""Communicators, the only way to another rank, whose methods have MPI's names."""
