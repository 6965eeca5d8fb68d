"""Fields of NVIDIA's Caffe 0.17: in which numbers its nets compute; and those that have no meaning here."""

from __future__ import annotations

from collections.abc import Mapping

from bpt.errors import PrototxtError
from bpt.origin import FieldPath, Origin, locate
from bpt.proto import bpt_pb2 as pb

TYPES = (pb.DOUBLE, pb.FLOAT, pb.FLOAT16)

_DIFFS = "diffs have the type of their blobs"
_MATH = "products are summed in single precision"
_KERNELS = "torch chooses kernels"
OF_NETS = {
    "default_backward_type": _DIFFS,
    "default_forward_math": _MATH,
    "default_backward_math": _MATH,
    "default_conv_algos_override": _KERNELS,
    "reduce_buckets": "gradients travel as parallel_param says",
    "default_cudnn_math_override": _KERNELS,
    "eltwise_mem_sharing": "sums write over what nobody needs any more by themselves",
}
"""Fields of NetParameter without a meaning here, and why."""

OF_LAYERS = {
    "backward_type": _DIFFS,
    "forward_math": _MATH,
    "backward_math": _MATH,
    "debug": "debug_info of the solver shows all blobs",
    "cudnn_math_override": _KERNELS,
}
"""Those of LayerParameter."""

OF_SOLVERS = {
    "solver_data_type": "weights, moments and gradients are kept in single precision, or in that of precision: FLOAT64",
    "store_blobs_in_old_format": "snapshots have the format that all Caffes read",
}
"""Those of SolverParameter."""


def check_types(net: pb.NetParameter, origins: Mapping[FieldPath, Origin], path: str) -> None:
    """Raise a PrototxtError if a net, or a layer of it, is to compute in what nobody computes in."""
    asked: list[tuple[FieldPath, int]] = [(("default_forward_type",), net.default_forward_type)]
    asked += [(("layer", index, "forward_type"), layer.forward_type) for index, layer in enumerate(net.layer)]
    for where, found in asked:
        if found not in TYPES:
            words = f"{where[-1]} is {pb.Type.Name(found)}; it must be FLOAT16, FLOAT or DOUBLE"
            raise PrototxtError(words, locate(origins, where, path))


def notes(net: pb.NetParameter) -> list[str]:
    """A line for each field that is set and has no effect."""
    found = [f"{field} has no effect: {why}" for field, why in OF_NETS.items() if net.HasField(field)]
    for field, why in OF_LAYERS.items():
        names = [layer.name for layer in net.layer if layer.HasField(field)]
        if names:
            found.append(f"{field} of {_listed(names)} has no effect: {why}")
    doubles = [layer.name for layer in net.layer if layer.HasField("forward_type") and layer.forward_type == pb.DOUBLE]
    if doubles and net.default_forward_type != pb.DOUBLE:
        found.append(f"forward_type: DOUBLE of {_listed(doubles)} is read as FLOAT: a run has one precision of its own")
    return found


def _listed(names: list[str]) -> str:
    rest = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return f'layer "{names[0]}"{rest}'
