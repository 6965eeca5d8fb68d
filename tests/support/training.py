"""A plain training loop around the net and the update rule, fed by hand as Caffe's HDF5Data fed the recordings."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import h5py
import numpy as np
import torch
from google.protobuf import text_format

from bpt.config.optim_spec import OptimSpec
from bpt.config.plan.nets import make_state
from bpt.config.plan.resolve import resolve
from bpt.config.plan.run_plan import RunPlan
from bpt.config.proto import bpt_pb2 as pb
from bpt.config.proto.sources import SolverSource
from bpt.engine.operator import Operator
from bpt.engine.optim.lr_policy import learning_rate
from bpt.engine.optim.rules import UpdateRule, make_rule
from bpt.graph.build import build_graph
from bpt.graph.layer_specs import layer_specs
from bpt.nn.layers import LAYERS
from bpt.nn.net import Net
from bpt.nn.pass_context import PassContext
from tests.support.paths import GOLDEN

SOLVERS = GOLDEN / "solvers"
SNAPSHOTS = GOLDEN / "snapshots"


def solver_of(text: str, *more: str) -> RunPlan:
    """What a solver's text says, with ``more`` laid over it."""
    param = pb.SolverParameter()
    for each in (text, *more):
        text_format.Merge(each, param)
    return resolve(SolverSource(param, "", {}))


def optim_of(text: str) -> OptimSpec:
    """What of a solver's text counts for updates."""
    return solver_of(text).optim


class Trainer:
    """Trains a recorded net whose first layer is HDF5Data, which an Input layer replaces.

    Forward pass number f gets rows f·B … f·B + B - 1, modulo their number, of ``data``.
    """

    def __init__(self, net: str, solver: str, data: Path) -> None:
        text = text_format.Parse(net, pb.NetParameter())
        batch = text.layer[0].hdf5_data_param.batch_size
        with h5py.File(data) as file:
            self.rows = {name: np.asarray(file[name], np.float32) for name in text.layer[0].top}
        text.layer[0].CopyFrom(pb.LayerParameter(name=text.layer[0].name, type="Input", top=text.layer[0].top))
        for name in text.layer[0].top:
            text.layer[0].input_param.shape.add(dim=(batch, *self.rows[name].shape[1:]))
        graph = build_graph(text.name, layer_specs(text), LAYERS, make_state(pb.TRAIN))
        self.plan = solver_of(solver)
        self.net = Net(graph, PassContext(seed=1))
        self.operator = Operator(self.net)
        self.rule: UpdateRule = make_rule(self.plan.optim, self.net, self.plan.snapshot_diff)
        self.iteration = 0
        self.forwards = 0
        self.batch = batch

    @property
    def weights(self) -> dict[str, np.ndarray]:
        """All parameter blobs, shared ones too, by ``layer/blob``."""
        return {
            f"{node.name}/{index}": self.net.layer(node).blob(index).detach().numpy()
            for node in self.net.graph.nodes
            for index in range(len(node.params))
        }

    def set_weights(self, weights: Mapping[str, np.ndarray]) -> None:
        with torch.no_grad():
            for name, values in weights.items():
                layer, blob = name.rsplit("/", 1)
                node = self.net.graph.nodes[self.net.graph.index_of[layer]]
                self.net.layer(node).blob(int(blob)).copy_(torch.from_numpy(values))

    def step(self) -> list[float]:
        """Train one iteration; returns the loss of each of its passes."""
        losses = []
        for _ in range(self.plan.optim.iter_size):
            self._feed()
            self.operator.forward(0)
            losses.append(self.operator.loss().item())
            self.operator.backward(0)
        self.rule.update(learning_rate(self.plan.optim, self.iteration), self.iteration)
        self.iteration += 1
        return losses

    def _feed(self) -> None:
        graph = self.net.graph
        places = np.arange(self.forwards * self.batch, (self.forwards + 1) * self.batch)
        self.forwards += 1
        self.operator.feed(
            {
                edge: torch.from_numpy(self.rows[graph.edges[edge].blob][places % len(self.rows["label"])])
                for edge in graph.nodes[0].tops
            }
        )
