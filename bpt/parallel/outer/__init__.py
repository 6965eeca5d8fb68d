"""The outer layer of BPT-CNN: which node trains what, and when the global weights change. Arithmetic only.

An OuterSchedule is fed with what workers report, and yields instructions. A run executes these with tensors and
messages; the simulator on a virtual clock; a replay reads them from the log of an earlier run.
"""
