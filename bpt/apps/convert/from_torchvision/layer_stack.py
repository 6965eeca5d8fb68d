"""Build the text of a network layer by layer, and note which tensors of a state_dict become the blobs of each layer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from bpt.config.proto import bpt_pb2 as pb
from bpt.config.proto.blobs import FloatArray
from bpt.graph.layer_spec import Shape

INPUT = "data"
SIDE = 224  # pixels of the input's height and width, in all of torchvision's classifiers here
_COLOURS = 3


@dataclass(frozen=True)
class LayerTensors:
    """The tensors of a state_dict that become the blobs of a layer.

    Attributes:
        layer: the layer's name.
        shapes: key of the state_dict → shape of the tensor, in the order of the blobs.
        has_factor: whether the blob of BatchNorm's scale factor follows. Caffe stores sums and their weight; with the
            factor 1 they are the running mean and variance themselves.
    """

    layer: str
    shapes: Mapping[str, Shape]
    has_factor: bool = False

    def blobs(self, tensors: Mapping[str, FloatArray]) -> tuple[FloatArray, ...]:
        """Return the layer's blobs, of the ``tensors`` of a state_dict."""
        factor = [np.ones(1, np.float32)] if self.has_factor else []
        return (*(tensors[key] for key in self.shapes), *factor)


class LayerStack:
    """A network's text in the making. Each method adds layers, and returns the blob that they write.

    The methods take the blob below, the layer's name in Caffe and, for a layer with weights, the name of its module in
    torchvision.

    Attributes:
        param: the text so far.
        tensors: where the weights of its layers come from, in the order of the layers.
    """

    def __init__(self, name: str) -> None:
        self.param = pb.NetParameter(name=name)
        self.tensors: list[LayerTensors] = []
        self._channels = {INPUT: _COLOURS}  # of each blob
        layer = self.param.layer.add(name=INPUT, type="Input", top=[INPUT])
        layer.input_param.shape.add(dim=[1, _COLOURS, SIDE, SIDE])

    @property
    def expected(self) -> dict[str, Shape]:
        """Key of the state_dict → shape of the tensor, of all tensors that the network takes."""
        return {key: shape for each in self.tensors for key, shape in each.shapes.items()}

    def convolution(
        self,
        bottom: str,
        name: str,
        module: str,
        channels: int,
        kernel: int,
        stride: int = 1,
        pad: int | None = None,
        bias: bool = False,
    ) -> str:
        """Add a convolution; by default its padding keeps the size of the image at stride 1."""
        layer = self._add("Convolution", name, bottom)
        param = layer.convolution_param
        param.num_output = channels
        param.kernel_size.append(kernel)
        pad = kernel // 2 if pad is None else pad
        if pad:
            param.pad.append(pad)
        if stride != 1:
            param.stride.append(stride)
        if not bias:
            param.bias_term = False
        param.weight_filler.type = "msra"
        shapes: dict[str, Shape] = {f"{module}.weight": (channels, self._channels[bottom], kernel, kernel)}
        if bias:
            shapes[f"{module}.bias"] = (channels,)
        self.tensors.append(LayerTensors(name, shapes))
        self._channels[name] = channels
        return name

    def batch_norm(self, blob: str, norm: str, scale: str, module: str, eps: float = 0) -> None:
        """Normalise ``blob`` in place, by a BatchNorm and a Scale; PyTorch does both in one module.

        Args:
            blob: the blob.
            norm: the name of the BatchNorm.
            scale: the name of the Scale.
            module: the name of the module.
            eps: what is added to the variance; 0: the default, 1e-5, which Caffe and PyTorch share.
        """
        channels = (self._channels[blob],)
        layer = self._add("BatchNorm", norm, blob, in_place=True)
        if eps:
            layer.batch_norm_param.eps = eps
        self.tensors.append(
            LayerTensors(norm, {f"{module}.running_mean": channels, f"{module}.running_var": channels}, has_factor=True)
        )
        self._add("Scale", scale, blob, in_place=True).scale_param.bias_term = True
        self.tensors.append(LayerTensors(scale, {f"{module}.weight": channels, f"{module}.bias": channels}))

    def relu(self, blob: str, name: str) -> None:
        """Add a ReLU in place."""
        self._add("ReLU", name, blob, in_place=True)

    def dropout(self, blob: str, name: str, ratio: float) -> None:
        """Add a Dropout in place; it only acts in training."""
        self._add("Dropout", name, blob, in_place=True).dropout_param.dropout_ratio = ratio

    def max_pooling(self, bottom: str, name: str, kernel: int, stride: int, pad: int = 0, floor: bool = False) -> str:
        """Add a maximum pooling.

        Args:
            bottom: the blob below.
            name: the layer's name.
            kernel: the side of a window.
            stride: the distance of windows.
            pad: the border around the image; its numbers never are the maximum, in Caffe as in PyTorch.
            floor: leave out a last window that is not complete, as PyTorch does by default; Caffe keeps it.
        """
        layer = self._add("Pooling", name, bottom)
        param = layer.pooling_param
        param.pool, param.kernel_size, param.stride = pb.PoolingParameter.MAX, kernel, stride
        if pad:
            param.pad = pad
        if floor:
            param.round_mode = pb.PoolingParameter.FLOOR
        self._channels[name] = self._channels[bottom]
        return name

    def global_average(self, bottom: str, name: str) -> str:
        """Add the mean over the whole image."""
        param = self._add("Pooling", name, bottom).pooling_param
        param.pool, param.global_pooling = pb.PoolingParameter.AVE, True
        self._channels[name] = self._channels[bottom]
        return name

    def inner_product(self, bottom: str, name: str, module: str, outputs: int, places: int = 1) -> str:
        """Add a fully connected layer; ``places`` is the height times the width of the blob below."""
        layer = self._add("InnerProduct", name, bottom)
        layer.inner_product_param.num_output = outputs
        layer.inner_product_param.weight_filler.type = "xavier"
        shapes: dict[str, Shape] = {
            f"{module}.weight": (outputs, self._channels[bottom] * places),
            f"{module}.bias": (outputs,),
        }
        self.tensors.append(LayerTensors(name, shapes))
        self._channels[name] = outputs
        return name

    def add(self, name: str, bottoms: Sequence[str]) -> str:
        """Add the sum of blobs."""
        self._add("Eltwise", name, *bottoms).eltwise_param.operation = pb.EltwiseParameter.SUM
        self._channels[name] = self._channels[bottoms[0]]
        return name

    def concat(self, name: str, bottoms: Sequence[str]) -> str:
        """Add the blobs one behind the other, along the channels."""
        self._add("Concat", name, *bottoms)
        self._channels[name] = sum(self._channels[bottom] for bottom in bottoms)
        return name

    def softmax(self, bottom: str) -> None:
        """Add the probabilities of the classes."""
        self._add("Softmax", "prob", bottom)

    def headers(self) -> Iterator[pb.LayerParameter]:
        """Yield name, type, bottoms and tops of each layer: what a caffemodel says of it besides its blobs."""
        for layer in self.param.layer:
            yield pb.LayerParameter(name=layer.name, type=layer.type, bottom=layer.bottom, top=layer.top)

    def _add(self, kind: str, name: str, *bottoms: str, in_place: bool = False) -> pb.LayerParameter:
        return self.param.layer.add(name=name, type=kind, bottom=bottoms, top=[bottoms[0] if in_place else name])
