"""DelayedOperator: a stage that goes on with the next batch before the gradients of earlier ones are there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from torch import Tensor, nn

from bpt.execute.staged import StagedOperator, way_of
from bpt.graph.segments import Segment
from bpt.layers.base import Layer
from bpt.schedule.instructions import Recv

Copies = dict[int, nn.Parameter]  # by id of the parameter that was copied


class DelayedOperator(StagedOperator):
    """Executes the instructions of ``schedule: DELAYED`` on one stage (Hybrid / GABRA, Eq. 1 and 2).

    A batch's backward pass comes some iterations after its forward pass, and differentiates what that has computed, by
    the weights of that time (Eq. 1: all superscripts are those of the batch). So a stage that has updated its weights
    in between runs each batch by copies of them, whose gradients go to the weights.

    The number of a micro-batch is that of the iteration whose batch it is; batches are not divided.
    """

    def __init__(self, *args: object, delay: int = 0, **options: object) -> None:
        super().__init__(*args, **options)  # type: ignore[arg-type]
        assert self.micro_batches == 1
        self._delay = delay
        self._copies: dict[int, Copies] = {}  # by batch

    def _pass_of(self, micro: int) -> int:
        return 0

    def forward_part(self, index: int, micro: int) -> Tensor:
        """See StagedOperator."""
        if not self._delay:
            return super().forward_part(index, micro)
        if micro not in self._copies:
            trained = (value for value in self.net.parameters() if value.requires_grad)
            self._copies[micro] = {id(value): nn.Parameter(value.detach().clone()) for value in trained}
        with self._with(self._copies[micro]):
            return super().forward_part(index, micro)

    def backward_part(self, index: int, micro: int) -> None:
        """See StagedOperator."""
        super().backward_part(index, micro)
        copies = self._copies.get(micro, {})
        for value in self.net.parameters():
            copy = copies.get(id(value))
            if copy is not None and copy.grad is not None:
                value.grad = copy.grad if value.grad is None else value.grad + copy.grad
                copy.grad = None

    @contextmanager
    def _with(self, copies: Copies) -> Iterator[None]:
        """Let the layers compute by ``copies`` inside."""
        lists = [layer.blobs for layer in self.net.layers if isinstance(layer, Layer)]
        own = [(blobs, index, blobs[index]) for blobs in lists for index in range(len(blobs))]
        for blobs, index, value in own:
            blobs[index] = copies.get(id(value), value)
        try:
            yield
        finally:
            for blobs, index, value in own:
                blobs[index] = value

    def finish(self, done: int | None = None) -> None:
        """An iteration is over; ``done``: the batch that no instruction will name any more."""
        self.values = self._take_outputs()
        self.diffs, self._states = {}, {}
        if done is not None:
            self._flights.pop(done, None)
            self._rotations.pop(done, None)
            self._copies.pop(done, None)

    def cut_into(self, segments: Sequence[Segment]) -> None:
        assert not self._flights, "batches are under way, by the segments as they were"
        super().cut_into(segments)

    def forget(self) -> None:
        """Forget all batches that have not come back: the run goes on from elsewhere."""
        self.links.drop()
        self._flights.clear()
        self._rotations.clear()
        self._copies.clear()

    def expect_diffs(self, iteration: int, first: int) -> None:
        """Receive meanwhile what the stages above send until an iteration's end and later ones wait for here.

        So all that is sent has somebody who receives it, whether the run goes on, tests or ends.

        Args:
            first: the iteration at which the run began.
        """
        for transfer in self.transfers:
            if not transfer.diff or transfer.from_stage != self.stage:
                continue
            sent = iteration - (self.links.stages.size - 1 - transfer.to_stage)  # the last batch whose diff has left
            under_way = sent - max(iteration - self._delay, first - 1)
            with self.links.stages.events.part_of(Recv(transfer.index, sent, diff=True)):
                while self.links.expected(*way_of(transfer, diff=True)) < under_way:
                    self._expect(transfer, sent, diff=True)
