"""BlobTasks: the tasks that make the pieces of an edge's blob (or diff), and the readers of these pieces.

An edge's blob exists as a whole or in parts, which are runs of samples. A reader that needs other pieces reads a view
of the whole; if the blob is in parts, an additional task joins them first.
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
    """The tasks of a pass while blocks add them."""

    def __init__(self) -> None:
        self.tasks: list[Task] = []
        self.works: list[Work] = []

    def add(self, name: str, cost: float, needs: Sequence[int], work: Work, pinned: bool = False) -> int:
        """Add a task; return its index."""
        self.tasks.append(Task(name, cost, tuple(sorted(set(needs))), pinned))
        self.works.append(work)
        return len(self.tasks) - 1

    def add_parts(
        self, name: str, cost: float, needs: Sequence[Sequence[int]], works: Sequence[Work], pinned: bool = False
    ) -> list[int]:
        """Add tasks that share ``cost`` equally, and are numbered if they are several; return their indices.

        Args:
            needs, works: of each of them.
        """
        parts = len(works)
        return [
            self.add(f"{name} {part}/{parts}" if parts > 1 else name, cost / parts, waits, work, pinned)
            for part, (waits, work) in enumerate(zip(needs, works, strict=True), 1)
        ]


@dataclass(frozen=True)
class Made:
    """The tasks that make an edge's blob: one for each part, or all of them the whole."""

    bounds: tuple[int, ...]  # of the parts; empty: it is made as a whole
    tasks: tuple[int, ...]


class BlobTasks:
    """The tasks that make all edges' blobs, or all their diffs.

    Args:
        tasks: the list to which tasks that join parts are added.
        store: returns the pieces of a pass, by edge and part.
        keep: the edges whose pieces are read again after the pass.
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

    def note(self, edge: int, tasks: Sequence[int], bounds: tuple[int, ...] = ()) -> None:
        """Note that ``tasks`` make ``edge``: one for each part or, without ``bounds``, all of them the whole."""
        self._made[edge] = Made(bounds, tuple(tasks))

    def read(self, edge: int, bounds: tuple[int, ...], part: int, alone: bool = True) -> tuple[list[int], Read]:
        """Return the tasks to wait for, and a reader of part ``part`` of ``edge`` under ``bounds``, or of the whole.

        Args:
            alone: whether no other task reads the same piece, so that reading it can free it.
        """
        made, store = self._made[edge], self._store
        if not made.bounds:
            needs = list(made.tasks)
        else:
            needs = [made.tasks[part]] if made.bounds == bounds else [self._join(edge)]
        key = (edge, part if bounds and made.bounds == bounds else WHOLE)
        if made.bounds == bounds or not bounds:
            if edge in self._keep or not alone:
                return needs, lambda run: store(run)[key]
            return needs, lambda run: store(run).pop(key)
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

            self._joined[edge] = self._tasks.add(f"join {edge}", 0.0, made.tasks, work)
        return self._joined[edge]

    def whole(self, edge: int) -> list[int]:
        """Ensure that ``edge`` is complete at the end of the pass; return the tasks that make it."""
        made = self._made[edge]
        return [self._join(edge)] if made.bounds else list(made.tasks)
