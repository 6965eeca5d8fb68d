"""Runs training iterations of one stage of a pipeline."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from bpt.context import RunContext
from bpt.events.bus import EventBus
from bpt.exchange import Exchange
from bpt.execute.iteration import forward_pass
from bpt.execute.staged import StagedOperator
from bpt.execute.status import Status
from bpt.schedule import instructions as do
from bpt.schedule.instructions import Instruction
from bpt.schedule.pipeline import Pipeline, instructions


@dataclass
class StagedIteration:
    """Executes the instructions of training iterations on one rank of a pipeline.

    Attributes:
        operator: runs the segments of this stage.
        rule: of ``pb.PipelineParameter.Schedule``.
        exchange, status, context, events: as for Iteration.
    """

    operator: StagedOperator
    rule: int
    exchange: Exchange
    status: Status
    context: RunContext
    events: EventBus
    _made: tuple[object, Sequence[Instruction]] = field(default=((), ()), init=False)

    def run(self, iter_size: int, update: Callable[[float], object], debug: bool) -> float:
        """Run the passes of one iteration in micro-batches, whose gradients add up, and then ``update``.

        Returns:
            The loss of all ranks, as a mean over the ``iter_size`` passes.
        """
        assert not debug, "debug_info is for ranks that run all layers"
        operator, loss, total = self.operator, torch.zeros((), device=self.operator.device), 0.0
        operator.begin(iter_size * operator.micro_batches)
        for instruction in self._instructions(iter_size):
            if isinstance(instruction, do.Wait):
                with self.events.during(instruction):
                    self.status.start(loss.item() / iter_size)
                    operator.finish()
                    self.exchange.wait()
            elif isinstance(instruction, do.Update):
                with self.events.during(instruction):
                    total = self.status.loss
                    update(total)
            else:
                loss = loss + self._execute(instruction)
        return total

    def _execute(self, instruction: Instruction) -> Tensor | float:
        """Execute what comes before ``Wait``; returns the losses that it has made."""
        operator = self.operator
        with self.events.during(instruction):
            match instruction:
                case do.Broadcast():
                    self.exchange.broadcast()
                case do.Draw(micro):
                    operator.draw(micro)
                case do.Forward(segment, int(micro)):
                    return operator.forward_part(segment, micro)
                case do.Backward(segment, int(micro)):
                    operator.backward_part(segment, micro)
                case do.Send(transfer, micro, diff):
                    operator.send(transfer, micro, diff)
                case do.Recv(transfer, micro, diff):
                    operator.recv(transfer, micro, diff)
                case do.Exchange(segment):
                    self.exchange.start(segment)
                case _:
                    raise AssertionError(instruction)
        return 0.0

    def _instructions(self, iter_size: int) -> Sequence[Instruction]:
        operator = self.operator
        pipeline = Pipeline(
            operator.stages,
            operator.transfers,
            iter_size,
            operator.micro_batches,
            self.exchange.broadcasts,
        )
        if self._made[0] != pipeline:
            self._made = pipeline, instructions(self.rule, pipeline, operator.stage)
        return self._made[1]

    def gradient_of(self, iteration: int) -> int | None:
        """See Iteration."""
        return iteration

    def look(self, debug: bool) -> float:
        """Run the net forward once, with the weights of the last update; returns this rank's loss. Collective."""
        assert not debug
        if self.exchange.broadcasts:
            self.exchange.broadcast()
        return forward_pass(self.operator)
