"""Fields of Caffe's forks: the number types of NVIDIA's nets; fields without effect here; refused fields.

A field of the schema that is in neither table is read somewhere. Settings of an unknown layer type need not be listed,
since the type itself is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from google.protobuf.message import Message

from bpt.base.errors import PrototxtError
from bpt.base.origin import FieldPath, Origin, locate
from bpt.config.proto import bpt_pb2 as pb
from bpt.config.proto.fields import is_repeated

TYPES = (pb.DOUBLE, pb.FLOAT, pb.FLOAT16)

_DIFFS = "diffs have the type of their blobs"
_MATH = "products are summed in single precision"
_KERNELS = "torch chooses kernels"
_READING = "num_workers of transform_param says how many threads read ahead"
_RANKS = "parallel_param says how ranks share a net"
NO_EFFECT: dict[str, dict[str, str]] = {
    "NetParameter": {
        "default_backward_type": _DIFFS,
        "default_forward_math": _MATH,
        "default_backward_math": _MATH,
        "default_conv_algos_override": _KERNELS,
        "reduce_buckets": "gradients travel as parallel_param says",
        "default_cudnn_math_override": _KERNELS,
        "eltwise_mem_sharing": "sums overwrite unused blobs automatically",
        "engine": _KERNELS,
        "compile_net_state": "layers are fused as they run, not in the text",
        "multinode": _RANKS,
    },
    "LayerParameter": {
        "backward_type": _DIFFS,
        "forward_math": _MATH,
        "backward_math": _MATH,
        "debug": "debug_info of the solver shows all blobs",
        "cudnn_math_override": _KERNELS,
        "engine": _KERNELS,
        "multinode": _RANKS,
        "mn_activation_param": _RANKS,
        "mn_grad_compress_param": _RANKS,
    },
    "SolverParameter": {
        "solver_data_type": (
            "weights, moments and gradients are kept in single precision, or in that of precision: FLOAT64"
        ),
        "store_blobs_in_old_format": "snapshots have the format that all Caffes read",
        "test_and_snapshot_last_epochs": "test_interval and snapshot say when",
    },
    "ConvolutionParameter": {"conv_algorithm": _KERNELS},
    "DetectionOutputParameter": dict.fromkeys(
        ("save_output_param", "visualize", "visualize_threshold", "save_file"), "the top has the results"
    ),
    "RegionLossParameter": {
        "side": "the feature map gives the number of cells",
        **dict.fromkeys(("jitter", "random", "absolute"), "they are for darknet's data"),
    },
    "VideoDataParameter": {
        "show_data": "nothing is shown",
        "num_of_labels": "a clip has one label",
        "max_sampling_rate": "it is for use_sampling_rate_jitter",
    },
    "DataParameter": {"threads": _READING, "parser_threads": _READING, "cache": _READING, "precache": _READING},
}
"""Fields without a meaning here, by their message, and the reason. ``engine`` inside of a layer's settings is
silently ignored, like Caffe's."""

_BY_SIZE = "AnnotatedData resizes by resize_param, ImageData by new_height and new_width"
_OF_OPENCV = "write the data set with such images"
REFUSED: dict[str, dict[str, str]] = {
    "SolverParameter": {
        "disabled_update": "nothing would be trained; bpt time --solver measures iterations",
        "test_offset": "tests are due at the multiples of test_interval",
    },
    "FillerParameter": {"scale": "write the filler as gaussian, with std"},
    "TransformationParameter": dict.fromkeys(("random_resize_param", "random_aspect_ratio_param"), _BY_SIZE),
    "ResizeParameter": dict.fromkeys(("height_scale", "width_scale"), "crop_h and crop_w of transform_param do that"),
    "NoiseParameter": dict.fromkeys(("clahe", "convert_to_hsv", "convert_to_lab"), _OF_OPENCV),
    "DetectionEvaluateParameter": dict.fromkeys(
        ("name_size_file", "resize_param"), "boxes are compared in parts of the image, which gives the same overlap"
    ),
    "NmsParameter": {"num_peak": "max_peaks and num_parts say how many peaks of which maps"},
    "VideoDataParameter": {
        "use_temporal_jitter": "list a video several times, with other first frames",
        "use_sampling_rate_jitter": "sampling_rate is the same for all clips",
        "use_multiple_label": "a clip has one label",
    },
    "RegionLossParameter": {
        "softmax_tree": "classes have no hierarchy",
        "class_map": "write labels as the net numbers its classes",
    },
    "DropoutParameter": {
        "sample_weights_test": "Dropout passes everything on in tests",
    },
    "BatchNormParameter": {"stats_batch_size": "BatchNorm takes its statistics over the batch"},
    "ConvolutionParameter": {"negative_slope": "it goes with relu: true"},
}  # fmt: skip
"""Fields that are refused unless they have their default, by their message, and the remedy."""


def check_net(net: pb.NetParameter, origins: Mapping[FieldPath, Origin], path: str) -> None:
    """Raise a PrototxtError if a net or a layer asks for an unsupported precision."""
    if net.bn_stats_batch_size:
        words = "bn_stats_batch_size, of another Caffe, is not supported: BatchNorm takes its statistics over the batch"
        raise PrototxtError(words, locate(origins, ("bn_stats_batch_size",), path))
    asked: list[tuple[FieldPath, int]] = [(("default_forward_type",), net.default_forward_type)]
    asked += [(("layer", index, "forward_type"), layer.forward_type) for index, layer in enumerate(net.layer)]
    for where, found in asked:
        if found not in TYPES:
            words = f"{where[-1]} is {pb.Type.Name(found)}; it must be FLOAT16, FLOAT or DOUBLE"
            raise PrototxtError(words, locate(origins, where, path))


def refused(message: Message) -> Iterator[tuple[FieldPath, str]]:
    """Yield each refused field of a fork in ``message``, or below it: its place, and a remedy."""
    for where, holder in _below(message, ()):
        fields = REFUSED.get(holder.DESCRIPTOR.name, {})
        if fields:
            default = type(holder)()
            for field, remedy in fields.items():
                if getattr(holder, field) != getattr(default, field):
                    yield (*where, field), f"{field}, of another Caffe, is not supported: {remedy}"


_APART = ("BlobProto", "NetParameter")


def _below(message: Message, where: FieldPath) -> Iterator[tuple[FieldPath, Message]]:
    """Yield ``message`` and all settings of layers in it with their places, without a solver's nets."""
    yield where, message
    for field, value in message.ListFields():
        if field.message_type is not None and field.message_type.name not in _APART:
            if is_repeated(field):
                for index, each in enumerate(value):
                    yield from _below(each, (*where, field.name, index))
            else:
                yield from _below(value, (*where, field.name))


def notes(net: pb.NetParameter) -> list[str]:
    """Return a line for each field that is set and has no effect."""
    found = []
    layers: dict[tuple[str, str], list[str]] = {}
    for where, holder in _below(net, ()):
        for field, why in NO_EFFECT.get(holder.DESCRIPTOR.name, {}).items():
            if not holder.HasField(field):
                continue
            if where:
                name = net.layer[int(where[1])].name
                layers.setdefault((".".join((*map(str, where[2:]), field)), why), []).append(name)
            else:
                found.append(f"{field} has no effect: {why}")
    found += [f"{field} of {_listed(names)} has no effect: {why}" for (field, why), names in layers.items()]
    doubles = [layer.name for layer in net.layer if layer.HasField("forward_type") and layer.forward_type == pb.DOUBLE]
    if doubles and net.default_forward_type != pb.DOUBLE:
        found.append(f"forward_type: DOUBLE of {_listed(doubles)} is read as FLOAT: a run has one precision of its own")
    return found


def _listed(names: list[str]) -> str:
    rest = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return f'layer "{names[0]}"{rest}'
