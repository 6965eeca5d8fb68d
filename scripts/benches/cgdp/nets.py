"""The networks of ``scripts/bench cgdp`` and ``gpu``: those of ``prototxt/``, on generated images of any size."""

from __future__ import annotations

from bpt.graph.segments import trained_layers
from bpt.net_graph import build_graph_of
from bpt.plan.resolve import resolve
from bpt.proto import bpt_pb2 as pb
from bpt.proto.sources import SolverSource
from scripts.benches.harness.nets import KINDS, Images, fed_net, solver_param

NETS = ("alexnet", "googlenet", "vgg16", "resnet152")
RATE = 1e-9  # so low that weights stay what they are: some of the networks are unstable at their start

# Two ranks of one core each train an iteration of these in about a second or less. Small images leave the convolutions'
# parameters as they are, and take from the first fully connected layer of AlexNet and VGG-16.
SMALL = {
    "lenet": Images(28, 16),
    "alexnet": Images(131, 4),
    "googlenet": Images(64, 4),
    "vgg16": Images(64, 2),
    "resnet152": Images(64, 2),
}
# Just large enough for the poolings on the way: for dry runs.
TINY = {
    "lenet": Images(28, 2),
    "alexnet": Images(67, 2),
    "googlenet": Images(32, 2),
    "vgg16": Images(32, 2),
    "resnet152": Images(32, 2),
}
# CGDP, Table 1: minibatch size per GPU. LeNet, to try things out, has its own.
PAPER = {
    "lenet": Images(28, 64),
    "alexnet": Images(227, 256),
    "googlenet": Images(224, 64),
    "vgg16": Images(224, 32),
    "resnet152": Images(224, 12),
}


def trained(name: str, size: int) -> int:
    """How many layers of the network ``name`` have parameters that are trained: those that chunks count."""
    return len(trained_layers(build_graph_of(resolve(solver_source(name, size, 1)).train)))


def solver_source(name: str, size: int, batch: int, drawn: bool = False) -> SolverSource:
    """A solver that trains the network ``name`` on generated images; it tests and writes nothing.

    Args:
        size: of the images. If it is not the network's own, its average poolings take the whole map: their windows fit
            that size alone.
        batch: of all ranks together.
        drawn: images are drawn anew for each batch by a DummyData layer, and belong to class 0. Otherwise the caller
            feeds the blobs "data" and "label" (Input).
    """
    fillers = ({"type": "gaussian", "std": 1}, {"type": "constant", "value": 0}) if drawn else ()
    net = fed_net(name, "DummyData" if drawn else "Input", Images(size, batch), *fillers)
    if size != KINDS[name].size:
        for layer in net.layer:
            _pool_all(layer)
    return SolverSource(solver_param(net, RATE), name, {})


def _pool_all(layer: pb.LayerParameter) -> None:
    pooling = layer.pooling_param
    if layer.type == "Pooling" and pooling.pool == pb.PoolingParameter.AVE and not pooling.global_pooling:
        layer.pooling_param.Clear()
        layer.pooling_param.pool = pb.PoolingParameter.AVE
        layer.pooling_param.global_pooling = True
