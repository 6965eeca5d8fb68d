"""The inner layer of BPT-CNN (section 4): a pass over a net as tasks that the threads of one process run.

``plan.py`` makes the tasks of a segment, by the ways that ``ways.py`` chooses: layers by samples, convolutions by
output areas or by filters, fully connected layers by neurons, a BatchNorm by samples that agree on their moments.
``pool.py`` runs them, ``operator.py`` is what the solver sees.
"""

from bpt.operators.task_dag.choice import InnerChoice
from bpt.operators.task_dag.operator import TaskDagOperator

__all__ = ["InnerChoice", "TaskDagOperator"]
