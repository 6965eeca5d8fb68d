"""Tasks of a BatchNorm in training, split by samples: it is normalised by the moments of all samples, exactly.

Forward, each task normalises its samples by their own mean ``m_k`` and deviation ``s_k``. One task makes the mean ``m``
and the deviation ``s`` of all: ``M2 = Σ M2_k + n_k (m_k - m)²``. Then each task corrects its samples, as
``(x - m) / s = (x - m_k) / s_k · (s_k / s) + (m_k - m) / s``. Backward, each task sums ``dy`` and ``dy · y`` by
channel, one adds these up, and each makes ``dx = (dy - Σ dy / N - y · Σ (dy · y) / N) / s``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor

from bpt.nn.kernels import by_channel
from bpt.nn.layers.batch_norm import BatchNorm
from bpt.parallel.task_dag.blob_tasks import Read
from bpt.parallel.task_dag.block_tasks import BlockTasks
from bpt.parallel.task_dag.blocks import TaskBlock
from bpt.parallel.task_dag.dag_state import DagState
from bpt.parallel.task_dag.draft import Draft
from bpt.parallel.task_dag.task_costs import BACKWARD

Steps = tuple[Callable[[int, Read, DagState], None], Callable[[DagState], None], Callable[[int, DagState], None]]
PHASES = 2  # each task's share of the layer's time, forward or backward


class MomentTasks(BlockTasks):
    """In each direction one task a part, one for all parts, and again one a part."""

    def __init__(self, block: TaskBlock, draft: Draft) -> None:
        super().__init__(block, draft)
        layer = draft.net.layer(block.nodes[0])
        assert isinstance(layer, BatchNorm) and len(block.nodes) == 1
        self._layer = layer
        self._parts = range(block.strategy.parts)

    def forward(self) -> None:
        block, draft, bounds = self.block, self.draft, self.block.strategy.bounds
        reads = [draft.values.read(self.bottom, bounds, part) for part in self._parts]
        steps = self._own_moments, self._all_moments, self._correct
        together, made = self._add(self.split, block.seconds, reads, steps, draft.order_of(block))
        draft.values.note(self.top, made, bounds)
        draft.close(block, [together])

    def backward(self) -> None:
        block, draft, bounds = self.block, self.draft, self.block.strategy.bounds
        if draft.wants[self.bottom]:
            reads = [draft.read_diff(self.top, bounds, part) for part in self._parts]
            steps = self._own_sums, self._all_sums, self._errors
            draft.diffs.note(self.bottom, self._add("sums", BACKWARD * block.seconds, reads, steps)[1], bounds)

    def _add(
        self,
        what: str,
        seconds: float,
        reads: Sequence[tuple[list[int], Read]],
        steps: Steps,
        order: Sequence[int] = (),
    ) -> tuple[int, list[int]]:
        """Add the tasks of a direction; return the one for all parts, and the last one of each part."""
        own_step, joint_step, last_step = steps
        works = [partial(own_step, part, read) for part, (_, read) in enumerate(reads)]
        own = self.add(what, seconds / PHASES, [needs for needs, _ in reads], works)
        (together,) = self.add(what, 0.0, [[*own, *order]], [joint_step])
        works = [partial(last_step, part) for part in self._parts]
        return together, self.add(self.split, seconds / PHASES, [[task, together] for task in own], works)

    # Forward

    def _own_moments(self, part: int, read: Read, run: DagState) -> None:
        x = read(run)
        assert x is not None
        top, mean, variance = by_channel.normalise(x, self._layer.eps)
        elements = x.numel() // x.shape[1]
        squares = variance.double() * (elements - 1)
        moments = torch.stack([torch.full_like(squares, elements), mean.double(), squares])
        run.saved["top", self.block.index, part] = top
        run.saved["moments", self.block.index, part] = moments

    def _all_moments(self, run: DagState) -> None:
        block, layer = self.block, self._layer
        own = [run.saved["moments", block.index, part] for part in self._parts]
        total = sum(int(moments[0, 0]) for moments in own)
        mean = torch.stack([moments[0] * moments[1] for moments in own]).sum(0) / total
        squares = torch.stack([moments[2] + moments[0] * (moments[1] - mean).square() for moments in own]).sum(0)
        inverse = torch.rsqrt(squares / total + layer.eps)
        dtype = run.saved["top", block.index, 0].dtype
        for part, moments in enumerate(own):
            factor = inverse * torch.sqrt(moments[2] / moments[0] + layer.eps)
            run.saved["moments", block.index, part] = torch.stack([factor, (moments[1] - mean) * inverse]).to(dtype)
        run.saved["inverse", block.index] = inverse.to(dtype)
        unbiased = squares / max(total - 1, 1)
        layer.add_statistics(mean.to(dtype), unbiased.to(dtype), total)

    def _correct(self, part: int, run: DagState) -> None:
        block, top = self.block, self.top
        y = run.saved.pop(("top", block.index, part))
        factor, shift = run.saved.pop(("moments", block.index, part))
        run.values[top, part] = torch.addcmul(_per_channel(shift, y), y, _per_channel(factor, y), out=y)
        run.flows[top] = block.needs_backward and self.wants_diff(run, self.bottom)
        if run.flows[top]:
            run.saved["top", block.index, part] = y

    # Backward

    def _own_sums(self, part: int, read: Read, run: DagState) -> None:
        index = self.block.index
        diff, y = read(run), run.saved.get(("top", index, part))
        if diff is None or y is None:
            return
        run.saved["diff", index, part] = diff
        axes = [axis for axis in range(y.dim()) if axis != 1]
        run.saved["sums", index, part] = torch.stack([diff.sum(axes), (diff * y).sum(axes)]).double()
        run.saved["elements", index, part] = torch.tensor(y.numel() // y.shape[1])

    def _all_sums(self, run: DagState) -> None:
        index = self.block.index
        there = [part for part in self._parts if ("sums", index, part) in run.saved]
        if there:
            total = sum(int(run.saved["elements", index, part]) for part in there)
            sums = torch.stack([run.saved["sums", index, part] for part in there]).sum(0)
            run.saved["sums", index] = sums / total

    def _errors(self, part: int, run: DagState) -> None:
        index, error = self.block.index, None
        diff = run.saved.pop(("diff", index, part), None)
        if diff is not None:
            y, inverse = run.saved.pop(("top", index, part)), run.saved["inverse", index]
            level, along = run.saved["sums", index].to(y.dtype)
            error = (
                torch.addcmul(diff, y, _per_channel(-along, y))
                .sub_(_per_channel(level, y))
                .mul_(_per_channel(inverse, y))
            )
        run.diffs[self.bottom, part] = error


def _per_channel(factors: Tensor, like: Tensor) -> Tensor:
    return factors.view(-1, *(1,) * (like.dim() - 2))
