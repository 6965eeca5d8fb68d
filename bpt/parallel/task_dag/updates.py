"""The update of the parameters as tasks of the backward pass (BPT-CNN, section 4.1.2, Eq. 23).

``w_ij ← w_ij - η ∂E/∂w_ij``, or whatever the solver's rule makes of the gradient, is ready as soon as the gradient is
complete and no task of the pass will read the weights any more: errors of the layer below are computed by them, too. So
the weights of the last layers are updated while the first ones still run backward.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import nn

from bpt.parallel.task_dag.blob_tasks import Work
from bpt.parallel.task_dag.dag_state import DagState
from bpt.parallel.task_dag.draft import Draft
from bpt.parallel.task_dag.task_costs import ELEMENTS
from bpt.parallel.task_dag.task_gradients import layer_of

MOVED = 5  # reads and writes of an element: gradient, weight and momentum are read, two of them written


def update_tasks(draft: Draft, complete: Mapping[int, Sequence[int]], readers: Mapping[int, Sequence[int]]) -> None:
    """Add the tasks that update, after all others: several, by rows of axis 0, for a large parameter.

    Small parameters are joined until they are worth a task.

    Args:
        complete: the tasks that complete a parameter's gradient.
        readers: those that may read its values.
    """
    small: list[int] = []
    waiting = 0.0
    for owner in complete:
        value = draft.parameters[owner]
        seconds = MOVED * value.numel() / ELEMENTS
        parts = min(draft.threads, int(seconds / draft.grain), value.shape[0] if value.dim() else 1)
        if parts > 1:
            for part in range(parts):
                first, last = (value.shape[0] * number // parts for number in (part, part + 1))
                name = f"{layer_of(draft, owner)} update {part + 1}/{parts}"
                needs = [*complete[owner], *readers[owner]]
                draft.tasks.add(name, seconds / parts, needs, _update([value], first, last))
            continue
        small.append(owner)
        waiting += seconds
        if waiting >= draft.grain:
            _together(draft, small, waiting, complete, readers)
            small, waiting = [], 0.0
    if small:
        _together(draft, small, waiting, complete, readers)


def _together(
    draft: Draft,
    owners: Sequence[int],
    seconds: float,
    complete: Mapping[int, Sequence[int]],
    readers: Mapping[int, Sequence[int]],
) -> None:
    layers = list(dict.fromkeys(layer_of(draft, owner) for owner in owners))
    name = layers[0] if len(layers) == 1 else f"{layers[0]}..{layers[-1]}"
    needs = [task for owner in owners for task in (*complete[owner], *readers[owner])]
    values = [draft.parameters[owner] for owner in owners]
    draft.tasks.add(f"{name} update", seconds, needs, _update(values, 0, None))


def _update(values: Sequence[nn.Parameter], first: int, last: int | None) -> Work:
    def work(run: DagState) -> None:
        assert run.update is not None
        run.update(values, first, last)

    return work
