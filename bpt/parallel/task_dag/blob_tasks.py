"""Books: which tasks make the pieces of an edge's blob (or diff), and how others get at them.

An edge's blob is there as a whole or in parts, runs of samples. Who needs it otherwise than it was made reads a view of
the whole, or has the parts put together by a task that is added for that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from bpt.parallel.task_dag.dag_state import WHOLE, DagState, Key
from bpt.parallel.task_dag.task_dag import Task

Work = Callable[[DagState], None]
Read = Callable[[DagState], Tensor | None]


class TaskList:
    """The tasks of a pass while they are being made."""

    def __init__(self) -> None:
        self.tasks: list[Task] = []
        self.works: list[Work] = []

    def add(self, name: str, cost: float, needs: Sequence[int], work: Work, pinned: bool = False) -> int:
        """Add a task; return its index."""
        self.tasks.append(Task(name, cost, tuple(sorted(set(needs))), pinned))
        self.works.append(work)
        return len(self.tasks) - 1


@dataclass(frozen=True)
class Made:
    """The tasks that make an edge's blob: those of each part, or of the whole."""

    bounds: tuple[int, ...]  # of the parts; empty: it is made as a whole
    tasks: tuple[tuple[int, ...], ...]


class BlobTasks:
    """The tasks that make all edges' blobs, or all their diffs.

    Args:
        tasks: to which those are added that put parts together.
        store: the pieces, by edge and part, in a pass.
        keep: edges whose pieces are read once more when the pass is done.
    """

    def __init__(
        self,
        tasks: TaskList,
        store: Callable[[DagState], dict[Key, Tensor | None]],
        keep: frozenset[int] = frozenset(),
    ) -> None:
        self._tasks = tasks
        self._store = store
        self._keep = keep
        self._made: dict[int, Made] = {}
        self._joined: dict[int, int] = {}

    def __contains__(self, edge: int) -> bool:
        return edge in self._made

    def note(self, edge: int, tasks: Sequence[Sequence[int]], bounds: tuple[int, ...] = ()) -> None:
        """Note that ``tasks`` make ``edge``: those of each part, or of the whole if there are no ``bounds``."""
        self._made[edge] = Made(bounds, tuple(map(tuple, tasks)))

    def read(self, edge: int, bounds: tuple[int, ...], part: int, alone: bool = True) -> tuple[list[int], Read]:
        """Return the tasks to wait for, and a reader of part ``part`` of ``edge`` under ``bounds``, or of the whole.

        Args:
            alone: whether no other task reads the same piece, so that it can go.
        """
        made, store = self._made[edge], self._store
        keep = edge in self._keep or not alone
        if made.bounds == bounds:
            key = (edge, part if bounds else WHOLE)
            needs = list(made.tasks[part if bounds else 0])
            return needs, (lambda run: store(run)[key]) if keep else (lambda run: store(run).pop(key))
        needs = [self._join(edge)] if made.bounds else list(made.tasks[0])
        key = (edge, WHOLE)
        if not bounds:
            return needs, (lambda run: store(run)[key]) if keep else (lambda run: store(run).pop(key))
        start, length = bounds[part], bounds[part + 1] - bounds[part]

        def view(run: DagState) -> Tensor | None:
            whole = store(run)[key]
            return None if whole is None else whole.narrow(0, start, length)

        return needs, view

    def _join(self, edge: int) -> int:
        """Return the task that joins the parts of ``edge``."""
        if edge not in self._joined:
            made, store = self._made[edge], self._store
            parts, keep = range(len(made.tasks)), edge in self._keep

            def work(run: DagState) -> None:
                book = store(run)
                pieces = [book[edge, part] if keep else book.pop((edge, part)) for part in parts]
                there = [piece for piece in pieces if piece is not None]
                assert len(there) in (0, len(pieces)), edge
                book[edge, WHOLE] = torch.cat(there) if there else None

            needs = [task for tasks in made.tasks for task in tasks]
            self._joined[edge] = self._tasks.add(f"join {edge}", 0.0, needs, work)
        return self._joined[edge]

    def whole(self, edge: int) -> list[int]:
        """Ensure that ``edge`` is complete at the end of the pass; return the tasks that make it."""
        made = self._made[edge]
        return [self._join(edge)] if made.bounds else list(made.tasks[0])
