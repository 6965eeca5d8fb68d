"""The inner layer of BPT-CNN (section 4): a pass over a net as tasks that the threads of one process run.

Section 4.1.1 splits convolutions by output areas (Eq. 12 to 15, Algorithm 4.1), section 4.1.2 fully connected layers
and weight updates (Eq. 21 to 23). Section 4.2 schedules the tasks by priorities (Algorithm 4.2).

Read the files in this order:

1. ``task_dag.py``: tasks, priorities, and the dispatcher (Algorithm 4.2).
2. ``split_strategy.py``, ``task_costs.py`` and ``blocks.py``: how each layer is split, and which layers a task runs.
3. ``draft.py``, ``blob_tasks.py``, ``dag_state.py`` and ``execute.py``: what the tasks share, and how they run layers.
4. ``block_tasks.py``: the base of the tasks of each split, which are in ``layer_tasks.py`` (samples),
   ``area_tasks.py`` with ``areas.py``, ``weight_tasks.py`` (neurons and filters) and ``moment_tasks.py``.
   ``pointwise.py`` has a faster convolution.
5. ``parameter_tasks.py``: gradients and updates as tasks.
6. ``segment_plan.py``: all tasks of a segment; ``dag_replay.py``: how long they would take.
7. ``pool.py`` and ``library.py``: the threads.
8. ``task_compute.py``: TaskDagCompute, which the operator uses.
"""

from bpt.parallel.task_dag.task_compute import TaskDagCompute

__all__ = ["TaskDagCompute"]
