"""Tasks of a BatchNorm in training, split by samples: it is normalised by the moments of all samples, exactly.

Forward, each task normalises its samples by their own mean ``m_k`` and deviation ``s_k``. One task makes the mean ``m``
and the deviation ``s`` of all: ``M2 = Σ M2_k + n_k (m_k - m)²``. Then each task corrects its samples, as
``(x - m) / s = (x - m_k) / s_k · (s_k / s) + (m_k - m) / s``. Backward, each task sums ``dy`` and ``dy · y`` by
channel, one adds these up, and each makes ``dx = (dy - Σ dy / N - y · Σ (dy · y) / N) / s``.
"""

from __future__ import annotations

import torch
from torch import Tensor

from bpt.nn.kernels import by_channel
from bpt.nn.layers.batch_norm import BatchNorm
from bpt.parallel.task_dag.blob_tasks import Read, Work
from bpt.parallel.task_dag.blocks import TaskBlock
from bpt.parallel.task_dag.dag_state import DagState
from bpt.parallel.task_dag.draft import Draft
from bpt.parallel.task_dag.execute import backward_error, forward_error
from bpt.parallel.task_dag.task_costs import BACKWARD

PHASES = 2  # each task's share of the layer's time, forward or backward


def forward_tasks(block: TaskBlock, draft: Draft) -> None:
    """Add the tasks of the block's forward: one a part, one for the moments, one a part."""
    (node,), (bottom,), (top,) = block.nodes, block.bottoms, block.tops
    layer = draft.net.layer(node)
    assert isinstance(layer, BatchNorm)
    bounds, parts = block.strategy.bounds, range(block.strategy.parts)
    cost = block.seconds / len(parts) / PHASES
    own = []
    for part in parts:
        needs, read = draft.values.read(bottom, bounds, part)
        work = _guarded(block, _own_moments(block, layer, read, part), forward=True)
        own.append(draft.tasks.add(f"{block.name} moments {part + 1}/{len(parts)}", cost, needs, work))
    all_moments = _guarded(block, _all_moments(block, layer), forward=True)
    together = draft.tasks.add(f"{block.name} moments", 0.0, [*own, *draft.order_of(block)], all_moments)
    made = []
    for part in parts:
        work = _guarded(block, _corrected(block, draft, part), forward=True)
        made.append([draft.tasks.add(block.part_name(part), cost, [own[part], together], work)])
    draft.values.note(top, made, bounds)
    draft.close(block, [[together]])


def _own_moments(block: TaskBlock, layer: BatchNorm, read: Read, part: int) -> Work:
    def work(run: DagState) -> None:
        x = read(run)
        assert x is not None
        top, mean, variance = by_channel.normalise(x, layer.eps)
        elements = x.numel() // x.shape[1]
        squares = variance.double() * (elements - 1)
        moments = torch.stack([torch.full_like(squares, elements), mean.double(), squares])
        run.kept["top", block.index, part] = top
        run.kept["moments", block.index, part] = moments

    return work


def _all_moments(block: TaskBlock, layer: BatchNorm) -> Work:
    def work(run: DagState) -> None:
        own = [run.kept["moments", block.index, part] for part in range(block.strategy.parts)]
        total = sum(int(moments[0, 0]) for moments in own)
        mean = torch.stack([moments[0] * moments[1] for moments in own]).sum(0) / total
        squares = torch.stack([moments[2] + moments[0] * (moments[1] - mean).square() for moments in own]).sum(0)
        inverse = torch.rsqrt(squares / total + layer.eps)
        dtype = run.kept["top", block.index, 0].dtype
        for part, moments in enumerate(own):
            factor = inverse * torch.sqrt(moments[2] / moments[0] + layer.eps)
            run.kept["moments", block.index, part] = torch.stack([factor, (moments[1] - mean) * inverse]).to(dtype)
        run.kept["inverse", block.index] = inverse.to(dtype)
        unbiased = squares / max(total - 1, 1)
        layer.add_statistics(mean.to(dtype), unbiased.to(dtype), total)

    return work


def _corrected(block: TaskBlock, draft: Draft, part: int) -> Work:
    (bottom,), (top,) = block.bottoms, block.tops

    def work(run: DagState) -> None:
        y = run.kept.pop(("top", block.index, part))
        factor, shift = run.kept.pop(("moments", block.index, part))
        torch.addcmul(_spread(shift, y), y, _spread(factor, y), out=y)
        run.values[top, part] = y
        run.flows[top] = run.grad and block.needs_backward and run.flows[bottom] and draft.wants[bottom]
        if run.flows[top]:
            run.kept["top", block.index, part] = y

    return work


def backward_tasks(block: TaskBlock, draft: Draft) -> None:
    """Add the tasks of the block's backward: one a part, one for the sums, one a part."""
    (bottom,), (top,) = block.bottoms, block.tops
    if not draft.wants[bottom]:
        return
    bounds, parts = block.strategy.bounds, range(block.strategy.parts)
    cost = BACKWARD * block.seconds / len(parts) / PHASES
    own = []
    for part in parts:
        needs, read = draft.read_diff(top, bounds, part)
        work = _guarded(block, _own_sums(block, read, part))
        own.append(draft.tasks.add(f"{block.name} sums {part + 1}/{len(parts)}", cost, needs, work))
    together = draft.tasks.add(f"{block.name} sums", 0.0, own, _guarded(block, _all_sums(block)))
    made = []
    for part in parts:
        work = _guarded(block, _errors(block, part))
        made.append([draft.tasks.add(block.part_name(part), cost, [own[part], together], work)])
    draft.diffs.note(bottom, made, bounds)


def _own_sums(block: TaskBlock, read: Read, part: int) -> Work:
    def work(run: DagState) -> None:
        diff, y = read(run), run.kept.get(("top", block.index, part))
        if diff is None or y is None:
            return
        run.kept["diff", block.index, part] = diff
        axes = [axis for axis in range(y.dim()) if axis != 1]
        sums = torch.stack([diff.sum(axes), (diff * y).sum(axes)])
        run.kept["sums", block.index, part] = sums.double()
        run.kept["elements", block.index, part] = torch.tensor(y.numel() // y.shape[1])

    return work


def _all_sums(block: TaskBlock) -> Work:
    parts = range(block.strategy.parts)

    def work(run: DagState) -> None:
        there = [part for part in parts if ("sums", block.index, part) in run.kept]
        if there:
            total = sum(int(run.kept["elements", block.index, part]) for part in there)
            sums = torch.stack([run.kept["sums", block.index, part] for part in there]).sum(0)
            run.kept["sums", block.index] = sums / total

    return work


def _errors(block: TaskBlock, part: int) -> Work:
    (bottom,) = block.bottoms

    def work(run: DagState) -> None:
        diff = run.kept.pop(("diff", block.index, part), None)
        run.diffs[bottom, part] = None
        if diff is not None:
            y, inverse = run.kept.pop(("top", block.index, part)), run.kept["inverse", block.index]
            level, along = run.kept["sums", block.index].to(y.dtype)
            error = torch.addcmul(diff, y, _spread(-along, y)).sub_(_spread(level, y)).mul_(_spread(inverse, y))
            run.diffs[bottom, part] = error

    return work


def _spread(factors: Tensor, like: Tensor) -> Tensor:
    return factors.view(-1, *(1,) * (like.dim() - 2))


def _guarded(block: TaskBlock, work: Work, forward: bool = False) -> Work:
    @torch.no_grad()
    def guarded(run: DagState) -> None:
        try:
            work(run)
        except (RuntimeError, MemoryError) as error:
            if forward:
                raise forward_error(block.nodes[0], error, []) from error
            raise backward_error(block.where, error) from error

    return guarded
