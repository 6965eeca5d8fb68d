"""Reads the recordings of a real Caffe in ``tests/golden``, and of its forks in ``tests/golden_forks``, and runs one
layer as they did.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
from google.protobuf import text_format

from bpt.config.plan.nets import make_state
from bpt.config.precision import FLOAT32, Precision
from bpt.config.proto import bpt_pb2 as pb
from bpt.engine.operator import Operator
from bpt.graph.build import build_graph
from bpt.graph.layer_graph import LayerGraph
from bpt.graph.layer_specs import layer_specs
from bpt.graph.segments import per_layer
from bpt.nn.layers import LAYERS
from bpt.nn.net import Net
from bpt.nn.pass_context import PassContext
from tests.support.paths import GOLDEN

LAYERS_OF = [GOLDEN / "layers", GOLDEN.with_name("golden_forks") / "layers"]
LAYER_TOLERANCE = 1e-4


def graph_of(text: str, phase: int = pb.TRAIN, **kwargs: Any) -> LayerGraph:
    """The graph of a prototxt given as a string."""
    param = text_format.Parse(text, pb.NetParameter())
    return build_graph(
        param.name, layer_specs(param), LAYERS, make_state(phase), force_backward=param.force_backward, **kwargs
    )


def assert_close(ours: np.ndarray, theirs: np.ndarray, what: str, tolerance: float = LAYER_TOLERANCE) -> None:
    """Whole tensors: equal shape, and the largest difference relative to the largest element."""
    assert ours.shape == theirs.shape, f"{what}: shape {ours.shape}, Caffe's {theirs.shape}"
    scale = max(1e-6, float(np.abs(theirs).max(initial=0)))
    error = float(np.abs(ours.astype(np.float64) - theirs.astype(np.float64)).max(initial=0)) / scale
    assert error <= tolerance, f"{what}: off by {error:.3g} relative, tolerance {tolerance:g}"


def recorded_kinds() -> list[str]:
    """The layer types that have recordings, also those that bpt does not have."""
    return sorted(path.stem for folder in LAYERS_OF for path in folder.glob("*.json"))


@cache
def recorded(kind: str) -> tuple[list[dict[str, Any]], dict[str, np.ndarray]]:
    """The cases and the arrays of ``layers/<kind>``."""
    (base,) = (folder / kind for folder in LAYERS_OF if (folder / f"{kind}.json").exists())
    return json.loads(base.with_suffix(".json").read_text()), dict(np.load(base.with_suffix(".npz")))


@dataclass
class LayerRun:
    """A recorded one-layer net, ready to be run step by step."""

    kind: str
    case: dict[str, Any]
    operator: Operator

    @classmethod
    def prepare(cls, kind: str, case: dict[str, Any], precision: Precision = FLOAT32) -> LayerRun:
        phase = pb.Phase.Value(case["phase"])
        net = Net(graph_of(case["prototxt"], phase), PassContext(seed=case["seed"], precision=precision))
        arrays = recorded(kind)[1]
        layer: Any = net.layers[net.graph.index_of[case["layer"]]]
        with torch.no_grad():
            for index, blob in enumerate(layer.blobs):
                assert list(blob.shape) == case["param_shapes"][index]
                if case["params_from_filler"]:
                    assert_close(blob.numpy(), arrays[f"{case['id']}/param/{index}"], f"filler of param {index}")
                else:
                    blob.copy_(torch.from_numpy(arrays[f"{case['id']}/param/{index}"]))
        return cls(kind, case, Operator(net, per_layer(net.graph)))

    def check(self) -> None:
        """Run all recorded steps, and compare tops, diffs and parameters with Caffe's."""
        for step in range(self.case["steps"]):
            self.step(step)

    def recorded(self, step: int, what: str) -> dict[str, np.ndarray]:
        """The arrays of one step under ``what`` ("top"), by blob name or parameter index."""
        prefix = f"{self.case['id']}/s{step}/{what}/"
        return {key[len(prefix) :]: value for key, value in recorded(self.kind)[1].items() if key.startswith(prefix)}

    def step(self, step: int) -> None:
        operator, graph = self.operator, self.operator.net.graph
        inputs = self.recorded(step, "in")
        changed = {name: tuple(array.shape) for name, array in inputs.items()}
        if any(graph.blobs[name].shape != shape for name, shape in changed.items()):
            graph = graph_of(self.case["prototxt"], graph.phase, input_shapes=changed)
            operator.net.reshape(graph)
        first = {edge.blob: edge for edge in reversed(graph.edges)}
        number = operator.net.context.precision.compute
        fed = {first[name].index: torch.from_numpy(array.copy()).to(number) for name, array in inputs.items()}
        operator.feed(fed)
        layer: Any = operator.net.layers[graph.index_of[self.case["layer"]]]
        if not self.case["accumulate"]:
            for blob in layer.blobs:
                blob.grad = None
        backward = self.case["backward"]
        for index in range(len(graph)):
            operator.forward(index, grad=backward)
        for name, array in self.recorded(step, "top").items():
            assert_close(operator.values[graph.blobs[name].index].numpy(), array, f"step {step}: top {name}")
        for number_of, array in self.recorded(step, "param_after").items():
            assert_close(layer.blobs[int(number_of)].detach().numpy(), array, f"step {step}: param {number_of} after")
        if not backward:
            return
        for name, array in self.recorded(step, "topdiff").items():
            operator.diffs[graph.blobs[name].index] = torch.from_numpy(array.copy()).to(number)
        for index in reversed(range(len(graph))):
            operator.backward(index)
        for name, array in self.recorded(step, "botdiff").items():
            diff = operator.diffs.get(first[name].index)
            ours = np.zeros_like(array) if diff is None else diff.numpy()
            assert_close(ours, array, f"step {step}: diff of {name}")
        for number_of, array in self.recorded(step, "pgrad").items():
            grad = layer.blobs[int(number_of)].grad
            ours = np.zeros_like(array) if grad is None else grad.numpy()
            assert_close(ours, array, f"step {step}: gradient of param {index}")
