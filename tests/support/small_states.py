"""A small net with a solver, to write and damage snapshots of."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

import h5py

from bpt.config.plan.run_plan import RunPlan
from bpt.config.proto import bpt_pb2 as pb
from bpt.engine.optim.rules import UpdateRule, make_rule
from bpt.nn.net import Net
from bpt.nn.pass_context import PassContext
from bpt.train import state as snapshot
from tests.support.golden_cases import graph_of
from tests.support.paths import GOLDEN
from tests.support.training import solver_of

NET = """
name: "small"
layer { name: "in" type: "Input" top: "x" input_param { shape { dim: 2 dim: 3 } } }
layer { name: "ip1" type: "InnerProduct" bottom: "x" top: "a"
  inner_product_param { num_output: 4 weight_filler { type: "gaussian" } bias_filler { type: "gaussian" } } }
layer { name: "b/ip2" type: "InnerProduct" bottom: "a" top: "b"
  inner_product_param { num_output: 2 weight_filler { type: "gaussian" } } }
"""
SOLVER = 'type: "SGD" momentum: 0.9 lr_policy: "fixed" base_lr: 0.1 snapshot_prefix: "snap"'


def net_of(text: str = NET, seed: int = 0) -> Net:
    return Net(graph_of(text), PassContext(seed=seed))


def values(net: Net) -> dict[str, list[float]]:
    return {f"{layer}/{blob}": v.flatten().tolist() for (layer, blob), v in net.values_by_name().items()}


@dataclass
class Small:
    """A net, its rule and its solver; ``snap(n)`` writes a snapshot after n iterations."""

    plan: RunPlan
    net: Net
    rule: UpdateRule

    @classmethod
    def make(cls, solver: str = "", net: str = NET, seed: int = 0) -> Small:
        plan = solver_of(SOLVER, solver)
        made = net_of(net, seed)
        return cls(plan, made, make_rule(plan.optim, made, plan.snapshot_diff))

    def snap(self, iteration: int, run: str | None = None, history: float | None = None) -> str:
        for moment in self.rule.history:
            moment.fill_(iteration if history is None else history)
        return snapshot.write(self.plan, self.net, self.rule, pb.SolverState(iter=iteration, run=run))

    def restore(self, path: str) -> pb.SolverState:
        return snapshot.restore(path, self.net, self.rule)


def write_other_files() -> Small:
    """Put snapshots of both formats, a net, a mean image and HDF5 data into the current folder."""
    small = Small.make()
    small.snap(3)
    Small.make("snapshot_format: HDF5").snap(3)
    Path("net.prototxt").write_text(NET)
    shutil.copy(GOLDEN / "lmdb" / "digits_train_mean.binaryproto", "mean.binaryproto")
    with h5py.File("data.h5", "w") as file:
        file["data"] = [1.0, 2.0]
    return small
