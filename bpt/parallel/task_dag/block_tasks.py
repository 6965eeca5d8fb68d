"""BlockTasks: the common base of the tasks of every split strategy."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import partial

from bpt.parallel.task_dag.blob_tasks import Work
from bpt.parallel.task_dag.blocks import TaskBlock
from bpt.parallel.task_dag.dag_state import DagState
from bpt.parallel.task_dag.draft import Draft
from bpt.parallel.task_dag.execute import kernel_errors


class BlockTasks(ABC):
    """The tasks of one block in one direction.

    Args:
        draft: of the forward pass, or of the backward pass.
    """

    def __init__(self, block: TaskBlock, draft: Draft) -> None:
        self.block = block
        self.draft = draft
        self.split = block.strategy.kind.value  # in the names of tasks
        self._where = draft.direction + block.where

    @abstractmethod
    def forward(self) -> None:
        """Add the tasks of the block's forward."""

    @abstractmethod
    def backward(self) -> None:
        """Add the tasks of the block's backward."""

    @property
    def bottom(self) -> int:
        """The edge of the only bottom."""
        (bottom,) = self.block.bottoms
        return bottom

    @property
    def top(self) -> int:
        """The edge of the only top."""
        (top,) = self.block.tops
        return top

    def add(
        self, what: str, seconds: float, needs: Sequence[Sequence[int]], works: Sequence[Work], pinned: bool = False
    ) -> list[int]:
        """Add tasks that share ``seconds``; return their indices.

        Args:
            what: names them beside the layers.
            needs, works: of each of them.
        """
        works = [partial(self._run, work) for work in works]
        return self.draft.tasks.add_parts(f"{self.block.name} {what}".rstrip(), seconds, needs, works, pinned)

    def _run(self, work: Work, run: DagState) -> None:
        with kernel_errors(self._where):
            work(run)

    def wants_diff(self, run: DagState, bottom: int) -> bool:
        """Return whether the block will hand back a diff of ``bottom``."""
        return run.grad and run.flows[bottom] and self.draft.wants[bottom]
