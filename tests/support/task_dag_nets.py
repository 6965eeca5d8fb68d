"""Nets for the tests of the inner layer, and what a pass over them leaves, by any operator."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from bpt.config.proto import bpt_pb2 as pb
from bpt.engine.operator import Operator
from bpt.graph.layer_graph import LayerGraph
from bpt.graph.segments import Segment
from bpt.nn.net import Net
from bpt.nn.pass_context import PassContext
from bpt.parallel.task_dag import TaskDagCompute
from bpt.parallel.task_dag.segment_plan import SegmentPlan
from tests.support.golden_cases import graph_of

TINY = 1e-12  # a grain that makes a task of everything


def image_net(layers: str, samples: int = 6, size: str = "dim: 3 dim: 9 dim: 8") -> LayerGraph:
    """A net of ``layers`` from images "x" and labels "y"."""
    return graph_of(
        f"""layer {{ name: "in" type: "Input" top: "x" top: "y"
            input_param {{ shape {{ dim: {samples} {size} }} shape {{ dim: {samples} }} }} }} {layers}"""
    )


def convolution(name: str, bottom: str, more: str, relu: bool = True) -> str:
    text = f"""layer {{ name: "{name}" type: "Convolution" bottom: "{bottom}" top: "{name}" convolution_param {{
        weight_filler {{ type: "xavier" }} bias_filler {{ type: "gaussian" std: 0.1 }} {more} }} }}"""
    return text + f""" layer {{ name: "{name}_relu" type: "ReLU" bottom: "{name}" top: "{name}" }}""" * relu


def fully_connected(name: str, bottom: str, num_output: int, more: str = "") -> str:
    return f"""layer {{ name: "{name}" type: "InnerProduct" bottom: "{bottom}" top: "{name}" {more}
        inner_product_param {{ num_output: {num_output} weight_filler {{ type: "xavier" }}
        bias_filler {{ type: "gaussian" std: 0.1 }} }} }}"""


def layer(kind: str, bottoms: str, tops: str, more: str = "") -> str:
    names = "".join(f' bottom: "{bottom}"' for bottom in bottoms.split())
    names += "".join(f' top: "{top}"' for top in tops.split())
    return f'layer {{ name: "{kind} {bottoms} {tops}" type: "{kind}" {names} {more} }}'


LOSS = layer("SoftmaxWithLoss", "score y", "loss")

INCEPTION = (
    convolution("stem", "x", "num_output: 6 kernel_size: 3 pad: 1")
    + layer("LRN", "stem", "norm", "lrn_param { local_size: 3 alpha: 0.1 }")
    + convolution("one", "norm", "num_output: 4 kernel_size: 1")
    + convolution("three_reduce", "norm", "num_output: 3 kernel_size: 1")
    + convolution("three", "three_reduce", "num_output: 4 kernel_size: 3 pad: 1")
    + convolution("five", "norm", "num_output: 2 kernel_size: 5 pad: 2 group: 2")
    + layer("Pooling", "norm", "pool", "pooling_param { pool: MAX kernel_size: 3 stride: 1 pad: 1 }")
    + layer("Concat", "one three five pool", "all")
    + layer("Dropout", "all", "all")
    + layer("Pooling", "all", "global", "pooling_param { pool: AVE global_pooling: true }")
    + fully_connected("aux", "all", 7)
    + layer("SoftmaxWithLoss", "aux y", "aux_loss", "loss_weight: 0.3")
    + fully_connected("score", "global", 7)
    + LOSS
)


def pass_over(operator: Operator, double: bool = True, passes: int = 1) -> dict[str, Tensor]:
    """Loss, outputs, gradients and the inputs' diffs after some passes whose gradients add up.

    Args:
        double: in float64, so that nothing hides in rounding.
    """
    net = operator.net.double() if double else operator.net
    generator = torch.Generator().manual_seed(5)
    dtype = torch.float64 if double else torch.float32
    for number in range(passes):
        for edge in net.graph.edges:
            if net.graph.nodes[edge.producer].type != "Input":
                continue
            is_label = len(edge.shape) == 1
            images = torch.randn(edge.shape, generator=generator, dtype=torch.float64).to(dtype)
            labels = torch.randint(0, 4, edge.shape, generator=generator).float()
            operator.feed({edge.index: labels if is_label else images})
        operator.begin_pass(0, number)
        for index in range(len(operator.segments)):
            operator.forward(index)
        for index in reversed(range(len(operator.segments))):
            operator.backward(index)
    grads = {name: p.grad for name, p in net.named_parameters() if p.grad is not None}
    ends = {f"value {edge.blob} {edge.index}": operator.values[edge.index] for edge in net.graph.outputs}
    diffs = {f"diff {edge}": diff for edge, diff in operator.diffs.items()}
    return {"loss": operator.loss(), **grads, **ends, **diffs}


def dag_operator(
    net: Net, segments: Sequence[Segment] | None = None, *, threads: int = 2, grain: float = TINY, **more: Any
) -> Operator:
    """An operator that computes by tasks."""
    return Operator(net, segments, compute=partial(TaskDagCompute, threads=threads, grain=grain), **more)


def tasks_of(operator: Operator) -> TaskDagCompute:
    assert isinstance(operator.compute, TaskDagCompute)
    return operator.compute


def plan_of(operator: Operator) -> SegmentPlan:
    """The tasks of the first segment."""
    return tasks_of(operator).plan(operator.segments[0])


def net_of(graph: LayerGraph) -> Net:
    return Net(graph, PassContext(seed=7))


def assert_same(actual: Mapping[str, Tensor], expected: Mapping[str, Tensor], tolerance: float) -> None:
    """Whole tensors, the largest difference relative to the largest element."""
    assert actual.keys() == expected.keys()
    for name, value in expected.items():
        scale = max(1e-6, float(value.abs().max())) if value.numel() else 1.0
        difference = float((actual[name] - value).abs().max()) if value.numel() else 0.0
        assert actual[name].shape == value.shape and difference <= tolerance * scale, (name, difference, scale)


ENGINES = {"NCHW": pb.SolverParameter.CONTIGUOUS, "NHWC": pb.SolverParameter.CHANNELS_LAST}


BATCH_NORM = (
    convolution("a", "x", "num_output: 4 kernel_size: 3 bias_term: false", relu=False)
    + layer("BatchNorm", "a", "b")
    + layer("Scale", "b", "b", "scale_param { bias_term: true }")
    + layer("ReLU", "b", "b")
    + convolution("c", "b", "num_output: 4 kernel_size: 3 pad: 1")
    + layer("Eltwise", "b c", "e")
    + fully_connected("score", "e", 5)
    + LOSS
)


def dag_threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name.startswith("task DAG")}
