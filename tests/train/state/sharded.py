"""A small net in slices: what each of several ranks holds, with weights, history and updates to tell apart."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from bpt.config.proto import bpt_pb2 as pb
from bpt.engine.optim.rules import UpdateRule, make_rule
from bpt.graph.layer_graph import LayerGraph
from bpt.graph.part import BlobSlice, Part, slice_bounds
from bpt.nn.net import Net
from bpt.nn.pass_context import PassContext
from bpt.system.comm.base import Communicator
from bpt.train import state as snapshot
from tests.support.golden_cases import graph_of
from tests.support.small_states import SOLVER
from tests.support.training import solver_of

FILLERS = 'weight_filler { type: "gaussian" } bias_filler { type: "gaussian" }'
NET = f"""
name: "sharded"
layer {{ name: "in" type: "Input" top: "x" input_param {{ shape {{ dim: 2 dim: 3 }} }} }}
layer {{ name: "first" type: "InnerProduct" bottom: "x" top: "a" param {{ lr_mult: 0 }}
  inner_product_param {{ num_output: 4 {FILLERS} }} }}
layer {{ name: "bn" type: "BatchNorm" bottom: "a" top: "bn" }}
layer {{ name: "fc1" type: "InnerProduct" bottom: "bn" top: "b" inner_product_param {{ num_output: 7 {FILLERS} }} }}
layer {{ name: "fc2" type: "InnerProduct" bottom: "b" top: "c"
  inner_product_param {{ num_output: 5 transpose: true {FILLERS} }} }}
layer {{ name: "narrow" type: "InnerProduct" bottom: "c" top: "d"
  inner_product_param {{ num_output: 2 bias_term: false {FILLERS} }} }}
layer {{ name: "last" type: "InnerProduct" bottom: "d" top: "e" inner_product_param {{ num_output: 3 {FILLERS} }} }}
"""
SPLIT = ("fc1", "fc2", "narrow")  # "narrow" has fewer outputs than there are ranks
PEER, MASTER_SLAVE = "PEER", "MASTER_SLAVE"


def parts_of(graph: LayerGraph, scheme: str, ranks: int) -> list[Part]:
    """What each rank holds; a single one has all, under either scheme."""
    split = {graph.index_of[name] for name in SPLIT}
    if scheme == PEER or ranks == 1:
        return [Part(None, _slices(graph, split, ranks, rank)) for rank in range(ranks)]
    master = Part(frozenset(range(len(graph))) - split)
    slaves = [Part(frozenset(split), _slices(graph, split, ranks - 1, rank)) for rank in range(ranks - 1)]
    return [master, *slaves]


def _slices(graph: LayerGraph, split: set[int], count: int, rank: int) -> dict[int, BlobSlice]:
    slices = {}
    for param in graph.params:
        if param.layer in split:
            spec = graph.nodes[param.layer].spec.param.inner_product_param
            axis = 1 if spec.transpose and param.blob == 0 else 0
            slices[param.index] = BlobSlice(axis, *slice_bounds(spec.num_output, count)[rank])
    return slices


class Rank:
    """One rank's part of the net with its solver. ``fill`` gives all values that it holds, by ``seed``."""

    def __init__(self, comm: Communicator, scheme: str, solver: str = "", seed: int = 0, text: str = NET) -> None:
        graph = graph_of(text)
        self.comm = comm
        self.plan = solver_of(SOLVER, solver)
        self.parts = parts_of(graph, scheme, comm.size)
        self.net = Net(graph, PassContext(seed=seed), part=self.parts[comm.rank])
        self.rule: UpdateRule = make_rule(self.plan.optim, self.net, self.plan.snapshot_diff)

    @torch.no_grad()
    def fill(self, seed: int) -> None:
        """Weights, history and updates of the whole net are drawn, and this rank takes what it holds of them."""
        generator = torch.Generator().manual_seed(seed)
        moments: list[list[Tensor]] = []
        for _ in range(self.rule.moments + 2):
            drawn = [torch.randn(param.shape, generator=generator) for param in self.net.graph.learnable]
            moments.append([self._own(values, index) for index, values in enumerate(drawn) if self._holds(index)])
        for param, values in zip(self.net.local_params, moments[0], strict=True):
            self.net.value(param).copy_(values)
        self.rule.history = [values for moment in moments[2:] for values in moment]
        if self.rule.updates is not None:
            # As after training: none for what is not trained.
            self.rule.updates = [
                None if param.lr_mult == 0 else values
                for param, values in zip(self.net.local_params, moments[1], strict=True)
            ]

    def _holds(self, place: int) -> bool:
        return self.net.holds(self.net.graph.learnable[place])

    def _own(self, values: Tensor, place: int) -> Tensor:
        own = self.net.part.slice_of(self.net.graph.learnable[place])
        return values if own is None else values[own.index(values.dim())].clone()

    def snap(self, iteration: int = 4) -> str:
        state = pb.SolverState(iter=iteration)
        return snapshot.write(self.plan, self.net, self.rule, state, self.comm, self.parts)

    @property
    def values(self) -> list[Tensor]:
        """All that a snapshot restores, as far as this rank holds it."""
        return [self.net.value(param).detach() for param in self.net.local_params] + list(self.rule.history)

    def expected(self, seed: int) -> list[Tensor]:
        """What ``fill(seed)`` would make of ``values``, without touching them."""
        other = Rank.__new__(Rank)
        other.__dict__.update(self.__dict__)
        other.net = Net(self.net.graph, part=self.net.part)
        other.rule = make_rule(self.plan.optim, other.net, self.plan.snapshot_diff)
        other.fill(seed)
        return other.values


def equal(ours: Sequence[Tensor], others: Sequence[Tensor]) -> bool:
    return len(ours) == len(others) and all(map(torch.equal, ours, others))
