"""The inner layer of BPT-CNN (section 4): a pass over a net as tasks that the threads of one process run.

``segment_plan.py`` makes the tasks of a segment, by the strategies that ``split_strategy.py`` chooses: layers by
samples, convolutions by output areas or by filters, fully connected layers by neurons, a BatchNorm by samples that
agree on their moments; and of the update (``updates.py``). ``pool.py`` runs them, ``task_compute.py`` is what the
operator sees.
"""

from bpt.parallel.task_dag.task_compute import TaskDagCompute

__all__ = ["TaskDagCompute"]
