"""Small nets for the tests of ``bpt explain``."""

from __future__ import annotations

from pathlib import Path

import torch

from bpt.apps.classify.classifier_net import ClassifierNet, classifier_net
from bpt.config.plan.nets import file_plan
from bpt.config.proto import bpt_pb2 as pb
from bpt.nn.net import Net
from bpt.system.device import CPU
from bpt.train.runtime.net_on_device import make_net


def input_layer(*shape: int) -> str:
    dims = " ".join(f"dim: {size}" for size in shape)
    return f'layer {{ name: "data" type: "Input" top: "data" input_param {{ shape {{ {dims} }} }} }}'


def conv(name: str, bottom: str, outputs: int, size: int) -> str:
    param = f"num_output: {outputs} kernel_size: {size} pad: {size // 2}"
    return (
        f'layer {{ name: "{name}" type: "Convolution" bottom: "{bottom}" top: "{name}" convolution_param {{ {param} '
        'weight_filler { type: "gaussian" std: 0.5 } bias_filler { type: "gaussian" std: 0.5 } } }'
    )


def relu(name: str, blob: str) -> str:
    return f'layer {{ name: "{name}" type: "ReLU" bottom: "{blob}" top: "{blob}" }}'


def pool(bottom: str) -> str:
    param = "pool: AVE global_pooling: true"
    return f'layer {{ name: "pool" type: "Pooling" bottom: "{bottom}" top: "pool" pooling_param {{ {param} }} }}'


def scores(bottom: str, classes: int) -> str:
    return (
        f'layer {{ name: "ip" type: "InnerProduct" bottom: "{bottom}" top: "ip" inner_product_param {{ '
        f'num_output: {classes} weight_filler {{ type: "gaussian" std: 0.5 }} }} }}'
    )


SOFTMAX = 'layer { name: "prob" type: "Softmax" bottom: "ip" top: "prob" }'


def explained(folder: Path, *layers: str) -> ClassifierNet:
    """The net of these layers, by way of a file in ``folder``."""
    path = folder / "net.prototxt"
    path.write_text('name: "small"\n' + "\n".join(layers))
    return classifier_net(file_plan(str(path), pb.TEST))


def made(net: ClassifierNet) -> Net:
    return make_net(net.graph, CPU)


def set_values(net: Net, layer: str, *values: list[float]) -> None:
    """Give a layer's parameters these values, in the order of memory."""
    node = net.graph.nodes[net.graph.index_of[layer]]
    with torch.no_grad():
        for index, given in zip(node.params, values, strict=True):
            blob = net.value(net.graph.params[index])
            blob.copy_(torch.tensor(given).reshape(blob.shape))
