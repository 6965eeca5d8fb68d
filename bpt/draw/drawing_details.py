"""A layer in a few words, its kind, and the kind's colour, for drawings."""

from __future__ import annotations

import os
from collections.abc import Callable

from bpt.graph.spec import LayerSpec
from bpt.proto import bpt_pb2 as pb

DATA, CONVOLUTION, CONNECTED, RECURRENT, POOLING, ACTIVATION, NORM, JOIN, LOSS, OTHER = KINDS = (
    "data", "convolution", "inner product", "recurrent", "pooling", "activation", "normalisation", "joins and shapes",
    "loss and score", "other",
)  # fmt: skip

COLOURS = {
    DATA: "#E69F00", CONVOLUTION: "#0072B2", CONNECTED: "#8E5BA6", RECURRENT: "#7A5C3E", POOLING: "#009E73",
    ACTIVATION: "#56B4E9", NORM: "#D8C21B", JOIN: "#8C8C8C", LOSS: "#D55E00", OTHER: "#CC79A7",
}  # fmt: skip
"""Kind of layer → colour; after Okabe and Ito, for readers with any kind of colour vision."""

_KIND_OF = {
    **dict.fromkeys(("Input", "Data", "Parameter"), DATA),
    **dict.fromkeys(("Convolution", "Deconvolution", "DepthwiseConvolution", "Im2col"), CONVOLUTION),
    **dict.fromkeys(("InnerProduct", "Embed", "Attention"), CONNECTED),
    **dict.fromkeys(("LSTM", "LSTMUnit", "RNN"), RECURRENT),
    **dict.fromkeys(("Pooling", "SPP", "Interp", "Upsample"), POOLING),
    **dict.fromkeys(
        ("ReLU", "ReLU6", "PReLU", "ELU", "Sigmoid", "TanH", "BNLL", "AbsVal", "Power", "Exp", "Log", "Swish", "Clip",
         "Threshold", "Dropout"), ACTIVATION,
    ),
    **dict.fromkeys(("LRN", "BatchNorm", "Scale", "Bias", "MVN", "Normalize"), NORM),
    **dict.fromkeys(
        ("Concat", "Slice", "Split", "Eltwise", "Flatten", "Reshape", "Crop", "Tile", "Permute", "ShuffleChannel",
         "Reduction", "Filter", "BatchReindex", "Axpy", "Silence"), JOIN,
    ),
    **dict.fromkeys(("Softmax", "Accuracy", "ArgMax", "SoftmaxWithLoss"), LOSS),
}  # fmt: skip


def kind_of(type_name: str) -> str:
    """One of KINDS, for the colour of a layer."""
    if type_name in _KIND_OF:
        return _KIND_OF[type_name]
    return DATA if type_name.endswith("Data") else LOSS if type_name.endswith("Loss") else OTHER


def detail_of(spec: LayerSpec, axes: int = 2) -> str:
    """The layer's type with what makes it: ``Convolution 5×5, 64, stride 2``. ``axes``: spatial ones of its top."""
    words = _WORDS[spec.type](spec.param, axes) if spec.type in _WORDS else []
    return " ".join(filter(None, (spec.type, ", ".join(filter(None, words)))))


def _kernel(param: pb.ConvolutionParameter | pb.PoolingParameter, axes: int) -> str:
    sizes = _sizes(param, "kernel_size", "kernel")
    return "×".join(map(str, sizes * axes if len(sizes) == 1 else sizes))


def _steps(param: pb.ConvolutionParameter | pb.PoolingParameter) -> list[str]:
    """Stride, pad and dilation, where they are not 1 or 0."""
    found = []
    for field, usual in (("stride", 1), ("pad", 0), ("dilation", 1)):
        sizes = _sizes(param, field, field)
        if sizes and set(sizes) != {usual}:
            shown = sizes[:1] if len(set(sizes)) == 1 else sizes
            found.append(f"{field} {'×'.join(map(str, shown))}")
    return found


def _sizes(param: pb.ConvolutionParameter | pb.PoolingParameter, field: str, short: str) -> list[int]:
    """The sizes along the axes; [] if the text has none, or one of 0."""
    if getattr(param, f"{short}_h", 0) or getattr(param, f"{short}_w", 0):
        return [getattr(param, f"{short}_h"), getattr(param, f"{short}_w")]
    value = getattr(param, field, ())
    return [value] * bool(value) if isinstance(value, int) else list(value)


def _convolution(layer: pb.LayerParameter, axes: int) -> list[str]:
    param = layer.convolution_param
    outputs = f"{param.num_output}" if param.num_output else ""
    return [_kernel(param, axes), outputs, *_steps(param), f"group {param.group}" if param.group > 1 else ""]


def _pooling(layer: pb.LayerParameter, axes: int) -> list[str]:
    param = layer.pooling_param
    rule = pb.PoolingParameter.PoolMethod.Name(param.pool)
    if param.global_pooling:
        return [f"{rule} global"]
    return [f"{rule} {_kernel(param, axes)}".rstrip(), *_steps(param)]


def _source(path: str) -> list[str]:
    return [os.path.basename(path.rstrip("/"))]


_WORDS: dict[str, Callable[[pb.LayerParameter, int], list[str]]] = {
    "Convolution": _convolution,
    "Deconvolution": _convolution,
    "DepthwiseConvolution": _convolution,
    "Pooling": _pooling,
    "InnerProduct": lambda layer, _: [f"{layer.inner_product_param.num_output}"],
    "Embed": lambda layer, _: [f"{layer.embed_param.input_dim} → {layer.embed_param.num_output}"],
    "LSTM": lambda layer, _: [f"{layer.recurrent_param.num_output}"],
    "RNN": lambda layer, _: [f"{layer.recurrent_param.num_output}"],
    "Dropout": lambda layer, _: [f"{layer.dropout_param.dropout_ratio:g}"],
    "LRN": lambda layer, _: [f"{layer.lrn_param.local_size}"],
    "Eltwise": lambda layer, _: [pb.EltwiseParameter.EltwiseOp.Name(layer.eltwise_param.operation)],
    "Accuracy": lambda layer, _: [f"top {layer.accuracy_param.top_k}" if layer.accuracy_param.top_k > 1 else ""],
    "Data": lambda layer, _: _source(layer.data_param.source),
    "ImageData": lambda layer, _: _source(layer.image_data_param.source),
    "HDF5Data": lambda layer, _: _source(layer.hdf5_data_param.source),
    "VolumeData": lambda layer, _: _source(layer.volume_data_param.source),
    "WindowData": lambda layer, _: _source(layer.window_data_param.source),
    "Python": lambda layer, _: [f"{layer.python_param.module}.{layer.python_param.layer}"],
}
"""Layer type → what is worth saying of its settings."""
