"""The examination before a run on many ranks: MPI, hosts, files and the plan, with problems and remedies.

Each file has one check. A check is a collective call: every rank examines its own host, and all ranks exchange what
they found. An error on one rank (a missing file) never keeps the other ranks waiting.
"""
