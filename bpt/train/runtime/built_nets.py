"""Builds the nets of a solver, each with its operator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from torch import nn

from bpt.config.plan.nets import NetPlan
from bpt.config.precision import Precision
from bpt.config.proto import bpt_pb2 as pb
from bpt.engine.operator import Operator
from bpt.graph.layer_graph import LayerGraph
from bpt.graph.segments import per_layer
from bpt.nn.net import Net
from bpt.nn.pass_context import PassContext
from bpt.parallel.balance.divisible_batches import is_dividable
from bpt.train.runtime.net_on_device import make_net
from bpt.train.runtime.outputs import Outputs
from bpt.train.runtime.parallel import Parallel
from bpt.train.runtime.train_options import DEFAULT_OPTIONS, MakeOperator, TrainOptions


class Built(NamedTuple):
    """A net with its operator, ready to run."""

    plan: NetPlan
    operator: Operator
    outputs: Outputs


@dataclass(frozen=True)
class RunNets:
    """The nets of a run."""

    train: Built
    tests: tuple[Built, ...]

    @property
    def net(self) -> Net:
        """The training net."""
        return self.train.operator.net

    @cached_property
    def by_name(self) -> dict[str, Net]:
        """All nets, by their names in a TrainState."""
        tests = {f"test#{index}": built.operator.net for index, built in enumerate(self.tests)}
        return {"train": self.net, **tests}

    @property
    def operators(self) -> list[Operator]:
        """The operators of all nets, the training net's first."""
        return [built.operator for built in (self.train, *self.tests)]


class Builder:
    """Builds the nets of one run.

    Args:
        seed: the seed of all random numbers.
        precision: the precision of all nets.
        parallel: decides the part of a net on this rank, and its operator.
        observable: whether to cut nets into one segment for each layer.
        options: the device, the log, and a maker of operators that replaces ``parallel``.
    """

    def __init__(
        self,
        seed: int,
        precision: Precision,
        parallel: Parallel,
        observable: bool = False,
        options: TrainOptions = DEFAULT_OPTIONS,
    ) -> None:
        self._device = options.device
        self._seed, self._precision = seed, precision
        self._parallel = parallel
        self._observable = observable
        self._make_operator = options.make_operator or self._operator
        self._log = options.log
        self._logged: set[str] = set()

    def build(
        self,
        what: str,
        plan: NetPlan,
        graph: LayerGraph,
        shared: Mapping[tuple[str, int], nn.Parameter] | None = None,
        make_operator: MakeOperator | None = None,
        filled: bool = True,
    ) -> Built:
        """Return the net of ``plan``, whose graph is ``graph``; ``shared`` and ``filled`` are as in Net.

        Args:
            make_operator: maker of this net's operator, instead of the common one.
        """
        self._log.info("Creating %s %s", what, plan.described_by)
        for note in plan.source.notes:
            if note not in self._logged:  # several nets may read the same text
                self._log.info("%s", note)
        self._logged.update(plan.source.notes)
        part = self._parallel.parts(graph)[self._parallel.grid.in_replica.rank]
        # Each rank tests the whole batches of a net that cannot divide them.
        alone = graph.phase == pb.TEST and not (self._parallel.is_alone or is_dividable(graph))
        context = PassContext(self._seed, self._precision)
        if not alone:
            context = self._parallel.batches.context(self._seed, graph.phase, self._precision, graph)
        net = make_net(graph, self._device, context, shared, part, filled)
        outputs = ", ".join(edge.blob for edge in graph.outputs)
        self._log.info(
            "%s: %d layers, %d parameters, outputs %s", graph.name, len(graph), graph.num_parameters, outputs
        )
        operator = (make_operator or self._make_operator)(net, self._device)
        batches = self._parallel.batches
        samples = None if alone else batches.holders
        return Built(plan, operator, Outputs(net, samples, self._parallel.grid.across_stages, batches.has_outputs))

    def _operator(self, net: Net, device: torch.device) -> Operator:
        graph = net.graph
        if self._observable:
            return Operator(net, per_layer(graph), device)
        segments = self._parallel.segments(graph, overlap=graph.phase == pb.TRAIN)
        return self._parallel.operator(net, segments, device)
