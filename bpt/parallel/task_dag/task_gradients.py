"""The gradients of parameters from what the tasks have made of them (BPT-CNN, section 4.1.2, Eq. 21 and 22).

What tasks add to one gradient is summed in a fixed order, whatever the threads do. Large gradients are summed by
several tasks, each for some filters (or neurons): elements of axis 0.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from bpt.parallel.task_dag.blob_tasks import Work
from bpt.parallel.task_dag.dag_state import DagState
from bpt.parallel.task_dag.draft import Draft, Slot
from bpt.parallel.task_dag.task_costs import ELEMENTS


def gradient_tasks(draft: Draft) -> dict[int, list[int]]:
    """Add the tasks that complete the gradients, after all others; return them by parameter."""
    complete: dict[int, list[int]] = {}
    small: dict[tuple[int, ...], list[int]] = {}  # parameters that wait for the same tasks
    for owner, slots in draft.added.items():
        value = draft.parameters[owner]
        seconds = value.numel() * (len(slots) + 1) / ELEMENTS
        tasks = tuple(task for slot in slots for task in slot.tasks)
        parts = min(draft.threads, int(seconds / draft.grain), value.shape[0] if value.dim() else 1)
        if parts > 1 and len(slots) > 1:
            for part in range(parts):
                first, last = (value.shape[0] * number // parts for number in (part, part + 1))
                work = _some_filters(owner, value, slots, first, last)
                name = f"{layer_of(draft, owner)} filters {part + 1}/{parts}"
                complete.setdefault(owner, []).append(draft.tasks.add(name, seconds / parts, tasks, work))
        else:
            small.setdefault(tasks, []).append(owner)
    for tasks, owners in small.items():
        groups = [(owner, draft.parameters[owner], draft.added[owner]) for owner in owners]
        elements = sum(value.numel() * (len(slots) + 1) for _, value, slots in groups if len(slots) > 1)
        name = f"{layer_of(draft, owners[0])} gradients"
        last = draft.tasks.add(name, elements / ELEMENTS, tasks, _together(groups))
        complete.update((owner, [last]) for owner in owners)
    return complete


def layer_of(draft: Draft, owner: int) -> str:
    """Return the name of the layer that has a parameter."""
    graph = draft.net.graph
    return graph.nodes[graph.params[owner].layer].name


def _together(groups: Sequence[tuple[int, nn.Parameter, Sequence[Slot]]]) -> Work:
    @torch.no_grad()
    def work(run: DagState) -> None:
        for owner, value, slots in groups:
            grads = _left(run, slots)
            if not grads:
                continue
            if run.fresh[owner]:
                value.grad = _owned(grads[0], value) if len(grads) == 1 else torch.empty_like(value)
            assert value.grad is not None
            if not run.fresh[owner] or len(grads) > 1:
                _sum(value.grad, grads, run.fresh[owner])

    return work


def _some_filters(owner: int, value: nn.Parameter, slots: Sequence[Slot], first: int, last: int) -> Work:
    @torch.no_grad()
    def work(run: DagState) -> None:
        grads = _left(run, slots, pop=False)
        if not grads:
            return
        if run.fresh[owner]:
            value.grad = run.room(("sum", owner), lambda: torch.empty_like(value))  # for all these tasks the same
        assert value.grad is not None
        _sum(value.grad[first:last], [grad[first:last] for grad in grads], run.fresh[owner])

    return work


def _left(run: DagState, slots: Sequence[Slot], pop: bool = True) -> list[Tensor]:
    """Return what the tasks have left, in the order of the sum; nothing where nothing flowed."""
    grads = [run.grads.pop(slot.key) if pop else run.grads[slot.key] for slot in slots]
    return [grad for grad in grads if grad is not None]


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
