"""Builds whole nets for tests, and compares them with the recordings in ``tests/golden/nets`` and ``…/structure``."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Mapping
from functools import cache
from types import ModuleType
from typing import Any

import numpy as np
import torch

from bpt.config.plan.nets import make_state
from bpt.config.proto import bpt_pb2 as pb
from bpt.config.proto.text import read_text
from bpt.engine.operator import Operator
from bpt.graph.build import build_graph
from bpt.graph.layer_graph import LayerGraph
from bpt.graph.layer_spec import Shape
from bpt.graph.layer_specs import layer_specs
from bpt.graph.segments import per_layer
from bpt.graph.state import filter_layers
from bpt.nn.layers import LAYERS
from bpt.nn.net import Net
from tests.support.golden_cases import assert_close
from tests.support.paths import GOLDEN, PROTOTXT

NETS = GOLDEN / "nets"


def read_net(path: str) -> pb.NetParameter:
    """The net in a file of ``prototxt/``."""
    return read_text(PROTOTXT / path, pb.NetParameter).message


def with_inputs(net: pb.NetParameter, phase: int, shapes: Mapping[str, Shape]) -> pb.NetParameter:
    """``net`` as it is in ``phase``, with an Input layer called "input" in place of its data layers.

    Accuracy layers are left out, and gradients are computed for everything: the recordings were made so.
    """
    param = pb.InputParameter(shape=[pb.BlobShape(dim=shape) for shape in shapes.values()])
    fed = pb.NetParameter(name=net.name, force_backward=True)
    fed.layer.add(name="input", type="Input", top=list(shapes), input_param=param)
    admitted = filter_layers(layer_specs(net), make_state(phase))
    without = ("AnnotatedData", "Data", "HDF5Data", "VolumeData", "Accuracy")
    fed.layer.extend(spec.param for spec in admitted if spec.type not in without)
    return fed


def graph_in(net: pb.NetParameter, phase: int) -> LayerGraph:
    return build_graph(net.name, layer_specs(net), LAYERS, make_state(phase), force_backward=net.force_backward)


@cache
def formula() -> ModuleType:
    """The recordings' own program for weights and inputs."""
    spec = importlib.util.spec_from_file_location("golden_formula", NETS / "formula.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@cache
def _structures() -> dict[str, dict[str, Any]]:
    entries = json.loads((GOLDEN / "structure" / "structure.json").read_text())
    return {entry["prototxt"]: entry for entry in entries}


def check_structure(name: str, net: pb.NetParameter) -> None:
    """Compare layers, splits, blobs, shapes, loss weights and parameters of ``net`` with what Caffe made of it."""
    theirs = _structures()[f"nets/dev/{name}.prototxt"]
    ours = graph_in(net, pb.Phase.Value(theirs["phase"]))
    assert [[node.name, node.type] for node in ours.nodes] == theirs["layers"]
    assert {node.name: list(node.spec.bottoms) for node in ours.nodes} == theirs["bottoms"]
    assert {node.name: list(node.spec.tops) for node in ours.nodes} == theirs["tops"]
    assert [[e.blob, list(e.shape), e.loss_weight] for e in ours.blobs.values()] == theirs["blobs"]
    assert list(ours.inputs) == theirs["inputs"]
    assert [edge.blob for edge in ours.outputs] == theirs["outputs"]
    params: dict[str, list[list[int]]] = {}
    for param in ours.params:
        params.setdefault(ours.nodes[param.layer].name, []).append(list(param.shape))
    assert params == theirs["params"]


class RecordedNet:
    """A net of ``tests/golden/nets`` with the recording's weights and inputs.

    Args:
        name: of the recording.
        net: with an Input layer for the recorded inputs.
    """

    def __init__(self, name: str, net: pb.NetParameter) -> None:
        self.name = name
        self.info = json.loads((NETS / f"{name}.json").read_text())
        self.theirs = dict(np.load(NETS / f"{name}.npz"))
        graph = graph_in(net, pb.Phase.Value(self.info["phase"]))
        self.net = Net(graph)
        self.params = {(graph.nodes[param.layer].name, param.blob): param for param in graph.params}
        self._fill()
        self.operator = Operator(self.net, per_layer(graph))

    def _fill(self) -> None:
        assert list(self.params) == [(param["layer"], param["blob"]) for param in self.info["params"]]
        for param in self.info["params"]:
            value = self.net.value(self.params[param["layer"], param["blob"]])
            assert list(value.shape) == param["shape"]
            what = (param["shape"], param["kind"], self.info["seed"], param["layer_idx"], param["blob"])
            with torch.no_grad():
                value.copy_(torch.from_numpy(formula().fill(*what, param["gain"] or 1.0)))

    def run(self) -> None:
        """One pass forward and backward on the recorded inputs."""
        graph, info = self.net.graph, self.info
        data = formula().data(info["input_shape"], info["seed"], info["input_scale"])
        arrays = [data, formula().label(info["batch"], info["classes"], info["seed"])]
        edges = [edge for edge in graph.edges if edge.blob in info["input_blobs"]]
        self.operator.feed({edge.index: torch.from_numpy(a) for edge, a in zip(edges, arrays, strict=False)})
        for index in range(len(graph)):
            self.operator.forward(index)
        for index in reversed(range(len(graph))):
            self.operator.backward(index)

    def check_forward(self) -> None:
        """Compare the losses and a sample and the norm of every blob."""
        for key, theirs in self._recorded("top/").items():
            blob = self.operator.values[self.net.graph.blobs[key].index].numpy()
            assert_close(formula().sub(blob), theirs, f"{self.name}: top {key}")
            assert_close(_norm(blob), self.theirs[f"topnorm/{key}"], f"{self.name}: norm of top {key}")
        for key, loss in self.info["losses"].items():
            blob = self.operator.values[self.net.graph.blobs[key].index].numpy()
            assert_close(blob, np.float32(loss).reshape(blob.shape), f"{self.name}: {key}")

    def check_backward(self, norm: float = 1e-4, sample: float = 1e-4, noise: float = 0.0) -> None:
        """Compare the gradients of the input and of every parameter.

        Args:
            norm: tolerance of a norm, relative.
            sample: of a sample, as the relative norm of the difference.
            noise: gradients below this norm, in both, are rounding errors and not compared.
        """
        first = self.info["input_blobs"][0]
        edge = next(edge for edge in self.net.graph.edges if edge.blob == first)
        self._check_gradient("grad/data", "gradnorm/data", self.operator.diffs[edge.index], 256, norm, sample, noise)
        for key in self._recorded("pgrad_norm/"):
            layer, blob = key.rsplit("/", 1)
            gradient = self.net.value(self.params[layer, int(blob)]).grad
            if gradient is None:
                gradient = torch.zeros(self.params[layer, int(blob)].shape)
            self._check_gradient(f"pgrad_sub/{key}", f"pgrad_norm/{key}", gradient, 32, norm, sample, noise)

    def _check_gradient(
        self, sub: str, norm: str, gradient: torch.Tensor, count: int, rtol: float, sample: float, noise: float
    ) -> None:
        ours, theirs = gradient.numpy(), self.theirs[sub]
        if max(float(_norm(ours)), float(self.theirs[norm])) <= noise:
            return
        assert_close(_norm(ours), self.theirs[norm], f"{self.name}: {norm}", rtol)
        error = _norm(formula().sub(ours, count) - theirs) / max(float(_norm(theirs)), 1e-12)
        assert error <= sample, f"{self.name}: {sub}: off by {error:.3g} relative, tolerance {sample:g}"

    def check_statistics(self) -> None:
        """Compare the running statistics of BatchNorm after the pass."""
        for key, theirs in self._recorded("bn_after/").items():
            layer, blob = key.rsplit("/", 1)
            ours = self.net.value(self.params[layer, int(blob)]).detach().numpy()
            assert_close(ours, theirs, f"{self.name}: statistics {key}")

    def _recorded(self, prefix: str) -> dict[str, np.ndarray]:
        return {key.removeprefix(prefix): value for key, value in self.theirs.items() if key.startswith(prefix)}


def _norm(array: np.ndarray) -> np.ndarray:
    return np.asarray(np.sqrt(np.square(array, dtype=np.float64).sum()))
