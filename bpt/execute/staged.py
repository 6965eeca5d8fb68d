"""Staged: what one rank does of a pipeline: its segments, for one micro-batch after the other."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from bpt.execute.local import LocalOperator, SegmentState
from bpt.execute.stage_links import Links
from bpt.graph.segments import Segment
from bpt.graph.spec import Shape, count
from bpt.graph.transfers import Transfer, transfers
from bpt.net import Net
from bpt.proto import bpt_pb2 as pb
from bpt.schedule.instructions import Draw, Send

ROTATION = 0  # the tag of what data layers tell; transfers have those behind it
Flight = tuple[dict[int, Tensor], dict[int, Tensor], dict[int, SegmentState]]  # of a micro-batch


class StagedOperator(LocalOperator):
    """Executes ``Draw``, ``Forward``, ``Backward``, ``Send`` and ``Recv`` on one stage of a pipeline.

    Layers without bottoms run on stage 0, once for all micro-batches of a pass. What passes of a micro-batch leave
    stays apart from that of others, from its first instruction until the backward pass of its last segment here.

    ``forward`` without a micro-batch runs the segments of this stage on the whole share, and does nothing for those of
    other stages: so a test, which has no backward pass, needs no schedule.

    Args:
        net: holds this stage's part (``graph.stages.part_of``).
        segments: cut where stages change, with ``sources_apart``.
        device, engine: as for LocalOperator.
        links: to the other stages.
        stages: of each layer of the net.
        cuts: the micro-batches into which the share of a pass is cut; see RunContext.
        inner: for the operator that this one is combined with.
    """

    def __init__(
        self,
        net: Net,
        segments: Sequence[Segment],
        device: torch.device | str = "cpu",
        engine: int = pb.SolverParameter.CONTIGUOUS,
        *,
        links: Links,
        stages: Sequence[int],
        cuts: tuple[int, ...] = (1,),
        **inner: int,
    ) -> None:
        super().__init__(net, segments, device, engine, **inner)
        self.stage = links.stages.rank
        self.micro_batches = math.prod(cuts)
        self._ended: dict[int, list[Tensor]] = {}  # output edge → what the micro-batches of the last pass have made
        self.links = links
        self._layers = tuple(stages)
        self._flights: dict[int, Flight] = {}
        self._rotations: dict[int, float] = {}  # of each pass
        self._last = 0  # micro-batch that nothing comes after
        net.sources_apart = True
        net.context.cuts = cuts
        self._look_around()

    def cut_into(self, segments: Sequence[Segment]) -> None:
        super().cut_into(segments)
        self._look_around()

    def _look_around(self) -> None:
        graph = self.net.graph
        self.stages = tuple(self._layers[segment.start] for segment in self.segments)
        self.transfers = transfers(graph, self.segments, self.stages)
        self._ends = {edge.index for edge in graph.outputs} | {edge.index for edge in graph.losses}

    def begin(self, micro_batches: int) -> None:
        """An iteration with so many micro-batches in all begins."""
        self._last = micro_batches - 1

    def _turn_to(self, micro: int) -> None:
        """Go on with a micro-batch of this iteration."""
        if micro not in self._flights:
            self._flights[micro] = {}, {}, {}
        self.values, self.diffs, self._states = self._flights[micro]
        context = self.net.context
        context.micro = self._pass_of(micro)
        context.part = micro % self.micro_batches if self.micro_batches > 1 else None
        context.rotation = self._rotations.get(self._first_of(micro), context.rotation)

    def _pass_of(self, micro: int) -> int:
        """Which of the iteration's passes a micro-batch is of."""
        return micro // self.micro_batches

    def _first_of(self, micro: int) -> int:
        """The first micro-batch of the same pass."""
        return micro - micro % self.micro_batches

    # Instructions

    def draw(self, micro: int) -> None:
        """``Draw``: run the layers without bottoms, for the micro-batches of a pass from ``micro`` on."""
        context = self.net.context
        context.micro, context.part = self._pass_of(micro), None
        drawn = self.net.draw(self._place)
        self._tell_rotation(micro)
        self._rotations[micro] = context.rotation
        self._ended.update({edge: [drawn[edge]] for edge in self._ends.intersection(drawn)})
        for part in range(self.micro_batches):
            self._turn_to(micro + part)
            for edge, tensor in drawn.items():
                self.values[edge] = self._rows(edge, tensor)

    def _rows(self, edge: int, tensor: Tensor) -> Tensor:
        """Those of the micro-batch that it has turned to."""
        if not tensor.dim():
            return tensor
        own = self.net.context.split(self.net.graph.edges[edge].shape[0])
        part = self.net.context.part_of(own)
        return tensor.narrow(0, part.start - own.start, part.count)

    def forward_part(self, index: int, micro: int) -> Tensor:
        """``Forward``: run a segment of this stage on a micro-batch; returns its losses, each times its weight."""
        context = self.net.context
        if self.stage and self._first_of(micro) not in self._rotations:
            self._learn_rotation()
            self._rotations[self._first_of(micro)] = context.rotation
        self._turn_to(micro)
        super().forward(index, grad=True)
        loss = torch.zeros((), device=self.device)
        for edge in self._ends.intersection(self.segments[index].outputs):
            if not context.part:
                self._ended[edge] = []
            self._ended[edge].append(self.values[edge])
            weight = self.net.graph.edges[edge].loss_weight
            if weight:  # another output may hold anything, and 0 times infinity is not 0
                loss = loss + self.values[edge].sum() * weight
        return loss

    def backward_part(self, index: int, micro: int) -> None:
        """``Backward``: run a segment of this stage backward, and let go of what only that needed."""
        self._turn_to(micro)
        super().backward(index)
        for edge in self.segments[index].inputs:
            self.values.pop(edge, None)
        for edge in self.segments[index].outputs:
            self.diffs.pop(edge, None)

    def send(self, transfer: int, micro: int, diff: bool) -> None:
        """``Send``: what the transfer's edges carry, or the sum of their diffs."""
        self._turn_to(micro)
        which = self.transfers[transfer]
        store = self.diffs if diff else self.values
        blobs = [store.pop(edge) for edge in which.edges if edge in store]
        blob = blobs[0] if len(blobs) == 1 or not diff else torch.stack(blobs).sum(0)
        what = Send(transfer, micro, diff)
        self.links.send(_typed(blob), which.from_stage if diff else which.to_stage, _tag(which, diff), what)

    def recv(self, transfer: int, micro: int, diff: bool) -> None:
        """``Recv``: wait for what another stage sends; what comes next on this way may come meanwhile."""
        which = self.transfers[transfer]
        stage, tag = way_of(which, diff)
        if not self.links.expected(stage, tag):
            self._expect(which, micro, diff)
        if micro < self._last:
            self._expect(which, micro + 1, diff)
        self._turn_to(micro)
        blob = self._place(self.links.receive(stage, tag).view(self._crossing_shape(which)))
        if diff:
            self.diffs[which.edges[0]] = blob
        else:
            self.values.update(dict.fromkeys(which.edges, blob))

    def _expect(self, transfer: Transfer, micro: int, diff: bool) -> None:
        self._turn_to(micro)
        self.links.expect(count(self._crossing_shape(transfer)), *way_of(transfer, diff))

    def finish(self) -> None:
        """``Wait``: all that was sent has left, and all micro-batches are done."""
        self.links.wait()
        self._flights.clear()
        self._rotations.clear()
        self.values = self._take_outputs()
        self.diffs, self._states = {}, {}
        self.net.context.part = None

    def _take_outputs(self) -> dict[int, Tensor]:
        """The net's outputs and losses that are made here, by edge, for the whole share of the last pass."""
        ended, self._ended = self._ended, {}
        return {edge: self._joined(edge, tensors) for edge, tensors in ended.items()}

    def _joined(self, edge: int, tensors: Sequence[Tensor]) -> Tensor:
        """An output of the net for the whole share, from its micro-batches."""
        node = self.net.graph.nodes[self.net.graph.edges[edge].producer]
        if len(tensors) == 1:
            return tensors[0]
        sums = node.tops.index(edge) < self.net.layer(node).sums_over_samples
        return torch.stack(list(tensors)).sum(0) if sums or not tensors[0].dim() else torch.cat(list(tensors))

    # The whole share at once

    def forward(self, index: int, grad: bool = True) -> None:
        """Run segment ``index`` on the whole share, if it is one of this stage."""
        if index == 0:
            self._begin_pass()
        if self.stages[index] != self.stage:
            return
        for transfer in self.transfers:
            if transfer.target == index:
                self.links.expect(count(self._crossing_shape(transfer)), *way_of(transfer))
                blob = self.links.receive(*way_of(transfer)).view(self._crossing_shape(transfer))
                self.values.update(dict.fromkeys(transfer.edges, self._place(blob)))
        super().forward(index, grad)
        self._send_whole(index)

    def _begin_pass(self) -> None:
        self.links.wait()
        self.values, self.diffs, self._states = {}, {}, {}
        if self.stage == 0:
            self.values.update(self.net.draw(self._place))
            self._tell_rotation(0)
            self._send_whole(None)
        else:
            self._learn_rotation()

    def _send_whole(self, source: int | None) -> None:
        for transfer in self.transfers:
            if (transfer.source, transfer.from_stage) == (source, self.stage):
                blob = _typed(self.values[transfer.edges[0]])
                self.links.send(blob, transfer.to_stage, _tag(transfer), Send(transfer.index, 0))

    def _crossing_shape(self, transfer: Transfer) -> Shape:
        """The shape of what crosses now."""
        return self.net.context.own_shape(transfer.shape)

    # The part of the batch by which the data layers have turned the ranks' shares: masks must follow

    def _tell_rotation(self, first: int) -> None:
        for stage in range(1, self.links.stages.size if self._turns else 0):
            told = torch.tensor([self.net.context.rotation], dtype=torch.float64)
            self.links.send(told, stage, ROTATION, Draw(first))

    def _learn_rotation(self) -> None:
        if self._turns:
            self.links.expect(1, 0, ROTATION, torch.float64)
            self.net.context.rotation = self.links.receive(0, ROTATION).item()

    @property
    def _turns(self) -> bool:
        return self.net.training and self.net.context.turns


def way_of(transfer: Transfer, diff: bool = False) -> tuple[int, int]:
    """Where it comes from, and its tag."""
    return (transfer.to_stage if diff else transfer.from_stage), _tag(transfer, diff)


def _tag(transfer: Transfer, diff: bool = False) -> int:
    return ROTATION + 1 + 2 * transfer.index + diff


def _typed(blob: Tensor) -> Tensor:
    return blob.to(torch.get_default_dtype())
