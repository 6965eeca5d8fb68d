"""Nets of one layer with odd settings: their graphs, and a pass of those that are small."""

from __future__ import annotations

import random
from functools import cache
from pathlib import Path

import torch
from google.protobuf.descriptor import FieldDescriptor

from bpt.config.plan.nets import NetPlan, file_plan
from bpt.config.proto import bpt_pb2 as pb
from bpt.config.proto.parse import parse_text
from bpt.config.proto.text import to_text
from bpt.engine.operator import Operator
from bpt.graph.layer_graph import LayerGraph
from bpt.graph.layer_spec import count
from bpt.graph.segments import per_layer
from bpt.nn.layers import LAYERS
from bpt.nn.net_graph import build_graph_of
from bpt.nn.pass_context import PassContext
from bpt.system.device import CPU
from bpt.train.runtime import net_on_device as making
from tests.fuzz import seeds
from tests.fuzz.engine import Target
from tests.fuzz.messages import Changer
from tests.fuzz.mutations import ODD_TEXTS

_MOST_ELEMENTS = 200_000  # of all blobs of a net that is run


_SOURCES = ("list.txt", "h5list.txt", "color_lmdb", "encoded_lmdb", "float_lmdb", "windows.txt", "nothing")


_MEANS = ("color_mean.binaryproto", "digits_train_mean.binaryproto", "list.txt")


_FILLERS = ("constant", "gaussian", "uniform", "xavier", "msra", "bilinear", "positive_unitball", "")


_WINDOWS = "# 0\nimages/im0.png\n3\n{}\n{}\n2\n1 0.9 0 0 3 3\n0 0.1 1 1 5 4\n"


_DATA_LAYERS = """
layer {{ name: "L" type: "Data" top: "y" top: "l" data_param {{ source: "{0}/color_lmdb" batch_size: 2 }} }}
layer {{ name: "L" type: "Data" top: "y" top: "l" transform_param {{ crop_size: 4 mirror: true scale: 0.5 }}
  data_param {{ source: "{0}/encoded_lmdb" batch_size: 2 }} }}
layer {{ name: "L" type: "ImageData" top: "y" top: "l" transform_param {{ crop_size: 4 mean_value: 3 }}
  image_data_param {{ source: "{0}/list.txt" root_folder: "{0}/images/" batch_size: 2 new_height: 8 new_width: 9 }} }}
layer {{ name: "L" type: "HDF5Data" top: "data" top: "label"
  hdf5_data_param {{ source: "{0}/h5list.txt" batch_size: 2 }} }}
layer {{ name: "L" type: "WindowData" top: "y" top: "l" transform_param {{ crop_size: 5 }} window_data_param {{
  source: "{0}/windows.txt" root_folder: "{0}/" batch_size: 2 fg_fraction: 0.5 context_pad: 1 }} }}
layer {{ name: "L" type: "DummyData" top: "y" dummy_data_param {{ shape {{ dim: 2 dim: 3 }}
  data_filler {{ type: "gaussian" }} }} }}
layer {{ name: "L" type: "MemoryData" top: "y" top: "l" memory_data_param {{
  batch_size: 2 channels: 1 height: 3 width: 3 }} }}
""".replace("{0}", "DATA")


class Nets(Target):
    """Nets changed field by field; those with small blobs are made, and run forward and backward."""

    name = "net"
    short = 300
    suffix = ".prototxt"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._data = seeds.copy_data(folder)
        self._data.joinpath("windows.txt").write_text(_WINDOWS.format(8, 8))
        # A Python layer runs what its text names.
        self._changer = Changer(self._text, small=True, forbidden=("python_param",))

    def case(self, rng: random.Random) -> bytes:
        nets = _nets()
        net = pb.NetParameter()
        net.CopyFrom(rng.choice(nets))
        if rng.random() < 0.3:
            net.layer.extend(layer for layer in rng.choice(nets).layer if layer.type != "Input")
        self._changer.change(rng, net, rng.choice((1, 1, 2, 2, 3, 5)))
        for layer in net.layer:
            if layer.type == "Python":
                layer.type = "ReLU"
        return to_text(net).encode().replace(b"DATA/", b"data/")

    def _text(self, rng: random.Random, field: FieldDescriptor) -> str:
        if field.name in ("bottom", "top", "name"):
            return rng.choice(("x", "x0", "x1", "y", "l", "L", "label", ""))
        if field.name in ("source", "mean_file", "source_b"):
            return "DATA/" + rng.choice(_SOURCES if field.name == "source" else _MEANS)
        if field.name == "type":
            holder = field.containing_type
            return rng.choice(_FILLERS if holder and holder.name == "FillerParameter" else sorted(LAYERS))
        return rng.choice(ODD_TEXTS)

    def run(self, case: bytes) -> None:
        path = self.file(case)
        for phase in (pb.TRAIN, pb.TEST):
            plan = file_plan(path, phase)
            graph = build_graph_of(plan)
            elements = sum(count(edge.shape) for edge in graph.edges) + sum(count(p.shape) for p in graph.params)
            if elements <= _MOST_ELEMENTS:
                self._pass(plan, graph, len(case))

    def _pass(self, plan: NetPlan, graph: LayerGraph, seed: int) -> None:
        context = PassContext(seed=seed)
        net = making.make_net(graph, CPU, context)
        try:
            operator = Operator(net, per_layer(graph), CPU)
            generator = torch.Generator().manual_seed(seed)
            inputs = {}
            for edge in graph.edges:
                if graph.nodes[edge.producer].type == "Input":
                    whole = seed % 3 == 0 or len(edge.shape) < 2
                    inputs[edge.index] = (
                        torch.randint(-1, 4, edge.shape, generator=generator).float()
                        if whole
                        else torch.randn(edge.shape, generator=generator)
                    )
            operator.feed(inputs)
            segments = range(len(graph))
            for index in segments:
                operator.forward(index, grad=graph.phase == pb.TRAIN)
            for index in reversed(segments) if graph.phase == pb.TRAIN else ():
                operator.backward(index)
        finally:
            net.close()


@cache
def _nets() -> tuple[pb.NetParameter, ...]:
    recorded = [parse_text(text, pb.NetParameter).message for text in seeds.layer_texts()]
    sources = parse_text(_DATA_LAYERS.replace("{{", "{").replace("}}", "}"), pb.NetParameter).message
    return (*recorded, *(pb.NetParameter(layer=[layer]) for layer in sources.layer for _ in range(3)))


TARGETS = (Nets,)
