"""The parts of ``scripts/testbed``: a cluster of unlike hosts on one Linux machine. docs/testbed.md explains it.

``hosts``, ``link`` and ``enter`` are arithmetic and text; ``network`` and ``cgroups`` make and remove what the kernel
holds; ``bed`` joins them to the one test bed of the machine; ``mpirun`` and ``job`` start commands on it.
"""
