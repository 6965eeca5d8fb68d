"""The small net with costs in round numbers, on clusters in round numbers.

Of a batch of 8 samples and its 12 units of work conv has 2 forward and 4 backward, ip and loss 1 and 2 each. It trains
112 + 195 = 307 parameters, which are 1,228 bytes.
"""

from __future__ import annotations

from pathlib import Path

from bpt.config.plan.run_plan import RunPlan
from bpt.nn.net_graph import build_graph_of
from bpt.parallel.cluster.cluster import Cluster, Node
from bpt.parallel.pipeline.placement.problem import costs_of
from bpt.perf.forecast.net_costs import NetCosts
from tests.support.small_solver import NET, small_solver

BYTES = 1228.0
TIMES = {"data": (0.0, 0.0), "conv": (2.0, 4.0), "ip": (1.0, 2.0), "loss": (1.0, 2.0)}

BRANCHES = """
name: "branches"
layer { name: "data" type: "DummyData" top: "x" top: "y"
        dummy_data_param { shape { dim: 32 dim: 3 dim: 8 dim: 8 } shape { dim: 32 }
                           data_filler { type: "gaussian" } data_filler { type: "constant" } } }
layer { name: "conv1" type: "Convolution" bottom: "x" top: "conv1" convolution_param { num_output: 4 kernel_size: 3 } }
NORM
layer { name: "left" type: "Convolution" bottom: "conv1" top: "left"
        convolution_param { num_output: 4 kernel_size: 3 } }
layer { name: "right" type: "Convolution" bottom: "conv1" top: "right"
        convolution_param { num_output: 8 kernel_size: 3 } }
layer { name: "both" type: "Concat" bottom: "left" bottom: "right" top: "both" }
layer { name: "conv2" type: "Convolution" bottom: "both" top: "conv2"
        convolution_param { num_output: 6 kernel_size: 3 } }
layer { name: "ip" type: "InnerProduct" bottom: "conv2" top: "ip" inner_product_param { num_output: 5 } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "y" top: "loss" }
"""
NORM = 'layer { name: "norm" type: "BatchNorm" bottom: "conv1" top: "conv1" }'


def small(folder: Path, *overrides: str, net: str = NET) -> tuple[RunPlan, NetCosts]:
    """A plan, and what its net costs."""
    plan = small_solver(folder, *overrides, net=net)
    graph = build_graph_of(plan.train)
    return plan, NetCosts(graph, costs_of(graph, plan.precision, TIMES))


def nodes(*speeds: float, **others: float) -> Cluster:
    """Of so many samples a second each, alike in all else."""
    return Cluster(tuple(Node(f"node{n}", speed, **others) for n, speed in enumerate(speeds)))  # type: ignore[arg-type]


def branches(folder: Path, norm: str, *overrides: str) -> tuple[RunPlan, NetCosts]:
    """The same of a net with two branches and, with NORM, a layer that normalises by batches; costs are operations."""
    plan = small_solver(folder, *overrides, net=BRANCHES.replace("NORM", norm))
    graph = build_graph_of(plan.train)
    return plan, NetCosts(graph, costs_of(graph, plan.precision))
