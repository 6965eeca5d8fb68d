"""Books: pieces of a blob reach those who need them in another form."""

from __future__ import annotations

import torch

from bpt.parallel.task_dag.blob_tasks import BlobTasks, TaskList
from bpt.parallel.task_dag.dag_state import WHOLE, DagState

X = torch.arange(10.0).view(5, 2)


def test_a_whole_is_cut_by_views() -> None:
    tasks = TaskList()
    book = BlobTasks(tasks, lambda run: run.values)
    book.note(7, [3, 4])
    run = DagState(values={(7, WHOLE): X})
    for part, (start, end) in enumerate(((0, 2), (2, 5))):
        needs, read = book.read(7, (0, 2, 5), part)
        assert needs == [3, 4]
        piece = read(run)
        assert piece is not None and torch.equal(piece, X[start:end])
        assert piece.untyped_storage().data_ptr() == X.untyped_storage().data_ptr()
    assert not tasks.tasks


def test_equal_parts_are_handed_on_and_go() -> None:
    tasks = TaskList()
    book = BlobTasks(tasks, lambda run: run.values)
    book.note(7, [0, 1], (0, 2, 5))
    run = DagState(values={(7, 0): X[:2], (7, 1): X[2:]})
    needs, read = book.read(7, (0, 2, 5), 1)
    assert needs == [1]
    assert read(run) is not None
    assert list(run.values) == [(7, 0)]


def test_parts_are_put_together_once() -> None:
    """By a task of their own, for a reader of the whole and for readers of other parts."""
    tasks = TaskList()
    first, second = tasks.add("a", 0.0, [], lambda run: None), tasks.add("b", 0.0, [], lambda run: None)
    book = BlobTasks(tasks, lambda run: run.values)
    book.note(7, [first, second], (0, 2, 5))
    needs, whole = book.read(7, (), 0, alone=False)
    again, part = book.read(7, (0, 1, 5), 1)
    assert needs == again == [2]
    assert [task.needs for task in tasks.tasks] == [(), (), (0, 1)]
    run = DagState(values={(7, 0): X[:2], (7, 1): X[2:]})
    tasks.works[2](run)
    assert list(run.values) == [(7, WHOLE)]
    for read, expected in ((whole, X), (part, X[1:])):
        piece = read(run)
        assert piece is not None and torch.equal(piece, expected)


def test_where_nothing_flows_nothing_is_put_together() -> None:
    tasks = TaskList()
    first, second = tasks.add_parts("a", 0.0, [[], []], [lambda run: None] * 2)
    book = BlobTasks(tasks, lambda run: run.diffs)
    book.note(7, [first, second], (0, 2, 5))
    _, read = book.read(7, (), 0)
    run = DagState(diffs={(7, 0): None, (7, 1): None})
    tasks.works[2](run)
    assert read(run) is None
