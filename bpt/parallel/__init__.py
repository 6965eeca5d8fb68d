"""The mechanisms of parallel training, a folder each, with its rules, arithmetic, schedule and execution.

``exchange``: all-reduce, tree, ring, local steps, codecs. ``cgdp``: chunked gradients (CGDP). ``model_parallel``: split
fully connected layers (MPI-FC). ``pipeline``: stages, their schedules, and placement with GABRA (Hybrid). ``balance``:
shares of a batch by speed (StaticLB, DYNAMIC). ``task_dag``: the inner layer (BPT-CNN, section 4). ``outer``: the
arithmetic of the outer layer (BPT-CNN, section 3), which ``bpt.train.outer`` executes. ``cluster``: nodes and links,
and what layers were measured to take on them. ``discrete_event``: the core of the virtual clocks.
"""
