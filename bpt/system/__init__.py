"""The system that a process runs on: communicators (MPI), devices and their streams, and the events of a rank."""
