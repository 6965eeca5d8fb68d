"""The gradients of parameters from what the tasks have made of them, and the updates by them, as tasks.

What tasks add to one gradient is summed in a fixed order, whatever the threads do (BPT-CNN, section 4.1.2, Eq. 21 and
22). The update, ``w_ij ← w_ij - η ∂E/∂w_ij`` (Eq. 23) or whatever the solver's rule makes of the gradient, is ready as
soon as the gradient is complete and no task of the pass will read the weights any more: errors of the layer below are
computed by them, too. So the weights of the last layers are updated while the first ones still run backward.

For a large parameter several tasks do this, each for some filters (or neurons): elements of axis 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import torch
from torch import Tensor, nn

from bpt.parallel.task_dag.areas import even_ranges
from bpt.parallel.task_dag.dag_state import DagState
from bpt.parallel.task_dag.draft import Draft, Slot
from bpt.parallel.task_dag.task_costs import ELEMENTS

MOVED = 5  # reads and writes of an element in an update: gradient, weight and momentum are read, two of them written


def gradient_tasks(draft: Draft) -> dict[int, list[int]]:
    """Add the tasks that complete the gradients, after all others; return them by parameter."""
    complete: dict[int, list[int]] = {}
    small: dict[tuple[int, ...], list[int]] = {}  # parameters that wait for the same tasks
    for owner, slots in draft.added.items():
        value = draft.parameters[owner]
        seconds = value.numel() * (len(slots) + 1) / ELEMENTS
        needs = tuple(task for slot in slots for task in slot.tasks)
        ranges = _ranges(draft, value, seconds)
        if len(ranges) > 1 and len(slots) > 1:
            works = [partial(_sum_rows, owner, value, slots, *ends) for ends in ranges]
            name = f"{_layer_of(draft, owner)} filters"
            complete[owner] = draft.tasks.add_parts(name, seconds, [needs] * len(works), works)
        else:
            small.setdefault(needs, []).append(owner)
    for needs, owners in small.items():
        groups = [(owner, draft.parameters[owner], draft.added[owner]) for owner in owners]
        elements = sum(value.numel() * (len(slots) + 1) for _, value, slots in groups if len(slots) > 1)
        name = f"{_layer_of(draft, owners[0])} gradients"
        last = draft.tasks.add(name, elements / ELEMENTS, needs, partial(_sum_parameters, groups))
        complete.update((owner, [last]) for owner in owners)
    return complete


def update_tasks(draft: Draft, complete: Mapping[int, Sequence[int]], readers: Mapping[int, Sequence[int]]) -> None:
    """Add the tasks that update, after all others. Small parameters are joined until they are worth a task.

    Args:
        complete: the tasks that complete a parameter's gradient.
        readers: those that may read its values.
    """
    small: list[int] = []
    waiting = 0.0

    def add(owners: Sequence[int], seconds: float, ranges: Sequence[tuple[int, int | None]]) -> None:
        layers = list(dict.fromkeys(_layer_of(draft, owner) for owner in owners))
        name = layers[0] if len(layers) == 1 else f"{layers[0]}..{layers[-1]}"
        needs = [task for owner in owners for task in (*complete[owner], *readers[owner])]
        works = [partial(_update, [draft.parameters[owner] for owner in owners], *ends) for ends in ranges]
        draft.tasks.add_parts(f"{name} update", seconds, [needs] * len(works), works)

    for owner in complete:
        value = draft.parameters[owner]
        seconds = MOVED * value.numel() / ELEMENTS
        ranges = _ranges(draft, value, seconds)
        if len(ranges) > 1:
            add([owner], seconds, ranges)
            continue
        small.append(owner)
        waiting += seconds
        if waiting >= draft.grain:
            add(small, waiting, [(0, None)])
            small, waiting = [], 0.0
    if small:
        add(small, waiting, [(0, None)])


def _ranges(draft: Draft, value: nn.Parameter, seconds: float) -> list[tuple[int, int]]:
    """Return the rows of each task, as many tasks as ``seconds`` of work are worth."""
    return even_ranges(value.shape[0] if value.dim() else 1, min(draft.threads, int(seconds / draft.grain)))


def _layer_of(draft: Draft, owner: int) -> str:
    """Return the name of the layer that has a parameter."""
    graph = draft.net.graph
    return graph.nodes[graph.params[owner].layer].name


def _update(values: Sequence[nn.Parameter], first: int, last: int | None, run: DagState) -> None:
    assert run.update is not None
    run.update(values, first, last)


def _sum_parameters(groups: Sequence[tuple[int, nn.Parameter, Sequence[Slot]]], run: DagState) -> None:
    for owner, value, slots in groups:
        grads = [grad for slot in slots if (grad := run.grads.pop(slot.key)) is not None]
        if not grads:
            continue
        if run.fresh[owner]:
            value.grad = _owned(grads[0], value) if len(grads) == 1 else torch.empty_like(value)
        assert value.grad is not None
        if not run.fresh[owner] or len(grads) > 1:
            _sum(value.grad, grads, run.fresh[owner])


def _sum_rows(owner: int, value: nn.Parameter, slots: Sequence[Slot], first: int, last: int, run: DagState) -> None:
    grads = [grad[first:last] for slot in slots if (grad := run.grads[slot.key]) is not None]
    if not grads:
        return
    if run.fresh[owner]:
        value.grad = run.buffer(("sum", owner), lambda: torch.empty_like(value))  # for all these tasks the same
    assert value.grad is not None
    _sum(value.grad[first:last], grads, run.fresh[owner])


def _sum(target: Tensor, grads: Sequence[Tensor], fresh: bool) -> None:
    """Set ``target`` to the sum of ``grads``, or add them to it if it is not ``fresh``."""
    rest = grads
    if fresh:
        if len(grads) == 1:
            target.copy_(grads[0])
            return
        torch.add(grads[0], grads[1], out=target)
        rest = grads[2:]
    for grad in rest:
        target.add_(grad)


def _owned(grad: Tensor, value: nn.Parameter) -> Tensor:
    """Return ``grad`` as a gradient of ``value``: in the same layout, in memory of its own."""
    if grad._base is None and grad.stride() == value.stride():
        return grad
    return torch.empty_like(value).copy_(grad)
