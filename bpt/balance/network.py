"""What of a network decides how long a sample takes."""

from __future__ import annotations

import hashlib

from bpt.graph.layer_graph import LayerGraph, Node
from bpt.proto import bpt_pb2 as pb

# Where a batch size or the place of a data set or a layer is written. None changes the work for a sample.
_IRRELEVANT = {
    "data_param": ("batch_size", "source"),
    "image_data_param": ("batch_size", "source", "root_folder"),
    "hdf5_data_param": ("batch_size", "source"),
    "volume_data_param": ("batch_size", "source", "root_folder"),
    "window_data_param": ("batch_size", "source", "root_folder"),
    "memory_data_param": ("batch_size",),
    "dummy_data_param": ("shape", "num"),
    "input_param": ("shape",),
    "transform_param": ("mean_file",),
    "parallel_param": ("stage",),
}


def work_digest(graph: LayerGraph) -> str:
    """32 hexadecimal digits that tell the work of a net's layers from that of any other net.

    Nets that differ in their batch size or in where their data lie have the same; the images' size is in.
    """
    content = hashlib.blake2b(digest_size=16)
    for node in graph.nodes:
        content.update(_relevant(node).SerializeToString(deterministic=True))
        content.update(repr([graph.edges[edge].shape[1:] for edge in node.tops]).encode())
    return content.hexdigest()


def _relevant(node: Node) -> pb.LayerParameter:
    param = pb.LayerParameter()
    param.CopyFrom(node.spec.param)
    for field, names in _IRRELEVANT.items():
        if param.HasField(field):
            for name in names:
                getattr(param, field).ClearField(name)
    return param
