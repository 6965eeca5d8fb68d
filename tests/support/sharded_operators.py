"""Runs a net in one process and on ranks that share its fully connected layers, for whole tensors to compare."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate

import torch
from torch import Tensor

from bpt.config.proto import bpt_pb2 as pb
from bpt.engine.operator import Operator
from bpt.graph.layer_graph import LayerGraph
from bpt.graph.part import slice_bounds
from bpt.graph.segments import cut, per_layer
from bpt.graph.share import Share
from bpt.nn.net import Net
from bpt.nn.pass_context import PassContext
from bpt.parallel.model_parallel.master_slave import MasterSlave
from bpt.parallel.model_parallel.model_parallel import blocks, parts, starts
from bpt.parallel.model_parallel.peer import Peer
from bpt.parallel.model_parallel.piece_exchange import PieceExchange
from bpt.system.comm.base import Communicator
from bpt.system.comm.grid import ProcessGrid
from bpt.system.events.totals import Traffic
from tests.support.cut_nets import layer
from tests.support.doubles.seen import Seen
from tests.support.doubles.thread_ranks import run_ranks
from tests.support.golden_cases import graph_of

PEER, MASTER_SLAVE = pb.FcParameter.PEER, pb.FcParameter.MASTER_SLAVE
SEED = 3
FILLERS = 'weight_filler { type: "xavier" } bias_filler { type: "uniform" max: 0.5 }'


def fed(batch: int, *shape: int) -> str:
    """An Input layer with x (batch, shape …) and labels y (batch, 1)."""
    dims = " ".join(f"dim: {size}" for size in (batch, *shape))
    return f"""layer {{ name: "in" type: "Input" top: "x" top: "y"
        input_param {{ shape {{ {dims} }} shape {{ dim: {batch} dim: 1 }} }} }}"""


def conv(name: str, bottom: str) -> str:
    return f"""layer {{ name: "{name}" type: "Convolution" bottom: "{bottom}" top: "{name}"
        convolution_param {{ num_output: 4 kernel_size: 3 {FILLERS} }} }}"""


def fc(name: str, bottom: str, num_output: int, more: str = "", param: str = "") -> str:
    return f"""layer {{ name: "{name}" type: "InnerProduct" bottom: "{bottom}" top: "{name}" {more}
        inner_product_param {{ num_output: {num_output} {FILLERS} {param} }} }}"""


@dataclass
class Result:
    """What is left of some passes; blobs by edge, gradients by Param.index."""

    loss: Tensor
    values: dict[int, Tensor]
    diffs: dict[int, Tensor]
    grads: dict[int, Tensor]
    rows: list[int] = field(default_factory=list)  # which samples of the batch this rank had
    traffic: dict[str, Traffic] = field(default_factory=dict)  # of this rank, by method


@dataclass(frozen=True)
class Job:
    """Passes of a net over one batch.

    Attributes:
        layers: the text.
        scheme: of fc_param.
        shards: ranks that share the layers.
        rows: samples of each rank that has any, replica by replica.
        rotation: shares are rotated by this part of the batch.
        passes: how many; their gradients add up.
        pieces: of fc_param.
    """

    layers: Sequence[str]
    scheme: int
    shards: int
    rows: Sequence[int]
    rotation: float = 0.0
    passes: int = 1
    phase: int = pb.TRAIN
    engine: int = pb.SolverParameter.CONTIGUOUS
    force_backward: bool = False
    device: str = "cpu"
    pieces: int = 1

    @property
    def graph(self) -> LayerGraph:
        return graph_of("\n".join(["force_backward: true" * self.force_backward, *self.layers]), self.phase)

    @property
    def is_training(self) -> bool:
        return self.phase == pb.TRAIN

    def inputs(self, graph: LayerGraph) -> tuple[Tensor, Tensor]:
        generator = torch.Generator().manual_seed(0)
        x, y = graph.edges[0].shape, graph.edges[1].shape
        return torch.randn(x, generator=generator), torch.randint(0, 3, y, generator=generator).float()

    def alone(self) -> Result:
        """One process, a segment a layer."""
        graph = self.graph
        context = PassContext(SEED)
        operator = Operator(Net(graph, context).to(self.device), per_layer(graph), self.device)
        operator.feed(dict(enumerate(self.inputs(graph))))
        return self._run(operator)

    def together(self) -> Result:
        """All ranks; what each has is put together to what the whole batch and the whole layers have."""
        results = self.ranks()
        with_samples = [r for r in range(len(results)) if self.scheme == PEER or r % self.shards == 0]
        return self._combine(results, with_samples)

    def ranks(self) -> list[Result]:
        """All ranks, and what each has."""
        group = self.shards if self.scheme == PEER else 1
        return run_ranks(len(self.rows) // group * self.shards, self._rank)

    def _rank(self, world: Communicator) -> Result:
        grid = ProcessGrid.regular(world, 1, self.shards)
        graph = self.graph
        group = self.shards if self.scheme == PEER else 1
        own = grid.replica * group + (grid.shard if self.scheme == PEER else 0)
        begins = accumulate(self.rows, initial=0)
        shares = [Share(begin, rows, sum(self.rows)) for begin, rows in zip(begins, self.rows, strict=False)]
        share = shares[own]
        samples = grid.across_samples if self.scheme == PEER else grid.across_replicas

        def total(tensor: Tensor, layer: str) -> Tensor:
            samples.Allreduce(tensor.numpy())
            return tensor

        context = PassContext(SEED, ranks=len(self.rows), split=lambda batch: share, total=total)
        net = Net(graph, context, part=parts(graph, self.scheme, self.shards)[grid.shard]).to(self.device)
        segments = cut(graph, starts(graph, self.scheme))
        net.next_rotation = lambda: self.rotation  # type: ignore[method-assign]
        device = torch.device(self.device)
        collectives: Peer | MasterSlave | None = None
        if self.scheme == PEER:
            in_group = shares[grid.replica * group : (grid.replica + 1) * group]
            collectives = Peer(net, device, PieceExchange(grid.across_shards, self.pieces), lambda batch: in_group)
        else:
            collectives = MasterSlave(net, device, PieceExchange(grid.across_shards, self.pieces))
        operator = Operator(net, segments, device, self.engine, collectives=collectives)
        rows = [r for run in share.runs(share.shift(self.rotation)) for r in range(*run)]
        if self.scheme == PEER or grid.shard == 0:
            operator.feed(dict(enumerate(blob[rows] for blob in self.inputs(graph))))
        seen = Seen(world)
        result = self._run(operator)
        traffic = {method: entry for (_, method), entry in seen.calls().items()}
        return replace(result, rows=rows, traffic=traffic)

    def _run(self, operator: Operator) -> Result:
        net = operator.net
        for number in range(self.passes):
            operator.begin_pass(0, number)
            for index in range(len(operator.segments)):
                operator.forward(index, grad=self.is_training)
            for index in reversed(range(len(operator.segments))) if self.is_training else ():
                operator.backward(index)
        grads = {p.index: net.value(p).grad for p in net.local_params}
        return Result(
            operator.loss().cpu(),
            {edge: value.cpu() for edge, value in operator.values.items()},
            {edge: diff.cpu() for edge, diff in operator.diffs.items()},
            {index: grad.cpu() for index, grad in grads.items() if grad is not None},
        )

    def _combine(self, results: Sequence[Result], with_samples: Sequence[int]) -> Result:
        graph = self.graph
        sliced = {block.top for block in blocks(graph, self.scheme) if block.keeps_slices}

        def place(edge: int, rank: int) -> tuple[Tensor, slice]:
            """Rows and columns that the rank has."""
            if edge not in sliced:
                return torch.tensor(results[rank].rows, dtype=torch.long), slice(None)
            group, shard = divmod(rank, self.shards)
            ranks = [results[other].rows for other in range(group * self.shards, (group + 1) * self.shards)]
            count = max(1, min(self.pieces, max(map(len, ranks))))
            cut = [[rows[a:b] for a, b in slice_bounds(len(rows), count)] for rows in ranks]
            rows = [row for piece in zip(*cut, strict=True) for own in piece for row in own]
            return torch.tensor(rows, dtype=torch.long), slice(
                *slice_bounds(graph.edges[edge].shape[1], self.shards)[shard]
            )

        def blobs(kind: str) -> dict[int, Tensor]:
            there = {rank: getattr(results[rank], kind) for rank in with_samples}
            whole = {}
            for edge in there[0]:
                if not graph.edges[edge].shape:  # a loss
                    whole[edge] = torch.stack([blobs[edge] for blobs in there.values()]).sum(0)
                    continue
                whole[edge] = torch.full(graph.edges[edge].shape, torch.nan)
                for rank, own in there.items():
                    rows, columns = place(edge, rank)
                    if edge in sliced:
                        whole[edge][rows, columns] = own[edge]
                    else:
                        whole[edge][rows] = own[edge]
            return whole

        held = parts(graph, self.scheme, self.shards)
        grads: dict[int, Tensor] = {}
        for rank, result in enumerate(results):
            for index, grad in result.grads.items():
                shape = graph.params[index].shape
                own = held[rank % self.shards].slice_of(graph.params[index])
                whole = grads.setdefault(index, torch.zeros(shape))
                whole[own.index(len(shape)) if own else ...] += grad
        return Result(torch.stack([result.loss for result in results]).sum(), blobs("values"), blobs("diffs"), grads)


def assert_equal(ours: Result, theirs: Result) -> None:
    """Whole tensors, up to 1e-6 of the largest element (of 1, if that is smaller)."""
    _assert_close(ours.loss, theirs.loss, "loss")
    for kind in ("values", "diffs", "grads"):
        found, expected = getattr(ours, kind), getattr(theirs, kind)
        assert found or kind == "diffs"
        assert set(found) <= set(expected)
        for key, value in found.items():
            _assert_close(value, expected[key], f"{kind} {key}")
    assert set(ours.grads) == set(theirs.grads)


def _assert_close(ours: Tensor, theirs: Tensor, what: str) -> None:
    assert ours.shape == theirs.shape, what
    error = (ours - theirs).abs().max() if ours.numel() else torch.zeros(())
    scale = max(1.0, theirs.abs().max().item() if theirs.numel() else 0.0)
    assert error <= 1e-6 * scale, f"{what}: off by {error:.3g}, the largest is {scale:.3g}"


DATA = "parallel_param { mode: DATA }"
NETS = {
    "one behind the other": [
        conv("c", "x"),
        layer("ReLU", "c", "c"),
        fc("a", "c", 7),
        layer("ReLU", "a", "a"),
        layer("Dropout", "a", "a", "dropout_param { dropout_ratio: 0.4 }"),
        fc("b", "a", 3),
        layer("SoftmaxWithLoss", "b y", "l"),
    ],
    "three in a row": [
        conv("c", "x"),
        layer("Dropout", "c", "c"),
        fc("a", "c", 7),
        fc("b", "a", 5, param="transpose: true"),
        layer("Sigmoid", "b", "s"),
        layer("Dropout", "s", "s"),
        fc("d", "s", 3, param="bias_term: false"),
        layer("SoftmaxWithLoss", "d y", "l"),
    ],
    "a whole one between": [
        fc("a", "x", 5),
        layer("TanH", "a", "t"),
        fc("b", "t", 6, DATA),
        layer("ReLU", "b", "b"),
        fc("d", "b", 4, param="transpose: true axis: -1"),
        layer("SoftmaxWithLoss", "d y", "l"),
    ],
    "fewer outputs than shards": [
        conv("c", "x"),
        fc("a", "c", 1),
        layer("Dropout", "a", "a"),
        fc("b", "a", 3),
        fc("d", "b", 1),
        layer("EuclideanLoss", "d y", "l"),
    ],
    "two heads": [
        conv("c", "x"),
        fc("a", "c", 5),
        layer("ReLU", "a", "a"),
        fc("p", "a", 3),
        layer("SoftmaxWithLoss", "p y", "l", "loss_weight: 0.3"),
        fc("q", "a", 4),
        layer("Dropout", "q", "q"),
        layer("SoftmaxWithLoss", "q y", "m", "loss_param { ignore_label: 1 }"),
    ],
    "a slice that is a loss": [
        fc("a", "x", 5),
        layer("Sigmoid", "a", "s", "loss_weight: 0.5"),
    ],
    "frozen and cut off": [
        conv("c", "x"),
        fc("a", "c", 4),
        fc("b", "a", 5, "param { lr_mult: 0 } param { lr_mult: 0 }"),
        layer("ReLU", "b", "b"),
        fc("d", "b", 4, "propagate_down: false"),
        fc("e", "d", 3, "param { lr_mult: 0 }"),
        layer("SoftmaxWithLoss", "e y", "l"),
    ],
}  # fmt: skip
