"""The preflight of a run on many ranks: what MPI, hosts, files and the plan are like, what is wrong, and what to do.

One file a check. A check is a collective call: every rank looks for itself, all learn what the others have seen, and
nothing that one rank meets (a file that is missing there) keeps the others waiting.
"""
