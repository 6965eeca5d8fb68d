"""A stage of a pipeline whose segments run as tasks on the threads of its process."""

from __future__ import annotations

from bpt.execute.staged import StagedOperator
from bpt.execute.task_dag import TaskDagOperator


class StagedDagOperator(StagedOperator, TaskDagOperator):
    """StagedOperator says which micro-batch a pass is of, TaskDagOperator runs it."""
