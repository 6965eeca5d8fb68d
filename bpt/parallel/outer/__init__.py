"""The outer layer of BPT-CNN (section 3.3): which node trains what, and when the global weights change.

It is arithmetic only: no tensors, no MPI.

Section 3.3.1 divides the data (IDPA and UDPA, Eq. 2 to 6, Algorithm 3.1). Section 3.3.2 updates the global weights:
SGWU (Eq. 7, waiting time Eq. 8) and AGWU (Eq. 9 and 10). Eq. 11 counts the bytes moved.

Read the files in this order:

1. ``outer_rules.py``: what combines with the outer layer.
2. ``idpa.py``: the samples of each node.
3. ``update_factors.py`` and ``global_versions.py``: factors and versions of the global weights; beyond the paper,
   ``staleness.py``, ``outer_step.py`` and ``local_updates.py``: corrections of stale submissions, momentum over
   versions, and submissions by speed.
4. ``outer_instructions.py``, ``worker_table.py``, ``base.py``, ``finish.py`` and ``migration.py``: OuterSchedule;
   ``sgwu.py``, ``agwu.py``, ``asgd.py``: its strategies.
5. ``exchanges.py``: the schedule that a solver asks for.
6. ``replay.py``, ``quantities.py`` and ``simulation``: replays, reported quantities, and a virtual clock.

An OuterSchedule gets what workers report, and yields instructions. A run executes these with tensors and messages, the
simulator on a virtual clock. A replay reads them from the log of an earlier run.
"""
