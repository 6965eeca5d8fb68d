"""A divided update: each rank updates its slice of the parameters, and gathers the slices of the others.

``SHARDED`` is stage 1 of ZeRO ("ZeRO: Memory Optimizations Toward Training Trillion Parameter Models", Rajbhandari et
al., 2020, section 5.1: P_os), with the two halves of the all-reduce pipelined as in DeAR ("DeAR: Accelerating
Distributed Deep Learning with Fine-Grained All-Reduce Pipelining", Zhang et al., 2023, arXiv 2302.12445, section 3).
``HOST`` is the update on the host of "ZeRO-Offload: Democratizing Billion-Scale Model Training" (Ren et al., 2021,
section 4).

Read the files in this order:

1. ``update_rules.py``: what combines with a divided update.
2. ``bpt/engine/optim/weight_slices.py``: the slices, which an update rule takes for parameters.
3. ``slice_messages.py`` and ``sharded_allreduce.py``: sums and gathers of slices.
4. ``gather_schedule.py``: the instruction Gather, which waits for a segment's weights.
5. ``bpt/parallel/cgdp/sharded_host_sum.py`` and ``bpt/parallel/cgdp/sharded_cgdp.py``: the same under CGDP.
"""
