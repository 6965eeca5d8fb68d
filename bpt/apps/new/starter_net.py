"""Make the network of ``bpt new``: its data layers, and layers that suit the size and the number of the pictures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bpt.apps.commands.examples import home
from bpt.base.errors import UsageError
from bpt.config.proto import bpt_pb2 as pb
from bpt.config.proto.sources import read_net

SIZES = {"small": 64, "resnet20": 32, "googlenet": 224}
"""Name of a network → the default side of its input, in pixels."""
_SMALLEST = {"small": 16, "resnet20": 16, "googlenet": 96}
_LARGEST = 512
_MARGIN = 8  # pictures are resized to a side that is larger than the input by a _MARGIN-th, and then cropped
_FEW = 1000  # largest number of pictures for which narrow layers are enough


@dataclass(frozen=True)
class StarterNet:
    """The network, and the data that it is made for.

    Attributes:
        kind: a key of SIZES.
        size: the side of the input, in pixels.
        classes: the number of classes.
        mean: the mean of the pictures' pixels: blue, green, red.
        sources: the lists to train with and to test with.
        batches: the samples of a batch of each list.
        pictures: the number of pictures.
    """

    kind: str
    size: int
    classes: int
    mean: Sequence[float]
    sources: tuple[str, str]
    batches: tuple[int, int]
    pictures: int

    @property
    def resized(self) -> int:
        """The side that pictures are resized to before a window of ``size`` is cropped."""
        return self.size + self.size // _MARGIN

    def text(self, name: str) -> pb.NetParameter:
        """Return the train text of the network ``name``."""
        layers = {"small": self._small, "resnet20": self._resnet20, "googlenet": self._googlenet}[self.kind]()
        return pb.NetParameter(name=name, layer=[*self._data(), *layers])

    def _data(self) -> Iterator[pb.LayerParameter]:
        for phase, source, batch in zip((pb.TRAIN, pb.TEST), self.sources, self.batches, strict=True):
            layer = pb.LayerParameter(name="data", type="ImageData", top=["data", "label"])
            layer.include.add(phase=phase)
            param, transform = layer.image_data_param, layer.transform_param
            param.source, param.batch_size = source, batch
            param.new_height = param.new_width = self.resized
            transform.crop_size = self.size
            transform.mean_value.extend(self.mean)
            if self.kind != "googlenet":  # its published weights take pixels that are not scaled
                transform.scale = 1 / 64
            if phase == pb.TRAIN:
                param.shuffle = transform.mirror = True
            yield layer

    def _small(self) -> Iterator[pb.LayerParameter]:
        """Yield blocks of a convolution with BatchNorm, each with half the side of the last, then a global average."""
        channels = 16 if self.pictures <= _FEW else 32
        blocks = max(2, (self.size // 6).bit_length() - 1)  # the last block sees 6 x 6 places, or a few more
        bottom = "data"
        for block in range(1, blocks + 1):
            width = min(channels * 2 ** (block - 1), 8 * channels)
            stride = 2 if block == 1 and self.size > 96 else 1  # for large pictures, every second pixel is enough
            yield from _convolution(f"conv{block}", bottom, width, stride)
            bottom = f"conv{block}"
            if block < blocks:
                pool = pb.LayerParameter(name=f"pool{block}", type="Pooling", bottom=[bottom], top=[f"pool{block}"])
                pool.pooling_param.kernel_size, pool.pooling_param.stride = 2, 2
                yield pool
                bottom = pool.name
        yield from _convolution(f"conv{blocks + 1}", bottom, width, 1)
        pool = pb.LayerParameter(name="pool", type="Pooling", bottom=[f"conv{blocks + 1}"], top=["pool"])
        pool.pooling_param.pool, pool.pooling_param.global_pooling = pb.PoolingParameter.AVE, True
        yield pool
        score = pb.LayerParameter(name="score", type="InnerProduct", bottom=["pool"], top=["score"])
        score.inner_product_param.num_output = self.classes
        score.inner_product_param.weight_filler.type = "xavier"
        yield score
        accuracy = pb.LayerParameter(name="accuracy", type="Accuracy", bottom=["score", "label"], top=["accuracy"])
        accuracy.include.add(phase=pb.TEST)
        yield accuracy
        yield pb.LayerParameter(name="loss", type="SoftmaxWithLoss", bottom=["score", "label"], top=["loss"])

    def _resnet20(self) -> Iterator[pb.LayerParameter]:
        for layer in _shipped("resnet20"):
            if layer.name == "fc":
                layer.inner_product_param.num_output = self.classes
            yield layer

    def _googlenet(self) -> Iterator[pb.LayerParameter]:
        """Yield the layers of the example network; its classifiers get new names and the right number of classes.

        With these names, published weights fill all layers except the classifiers. The test's output is called
        "accuracy".
        """
        for layer in _shipped("googlenet"):
            if layer.name.endswith("top-5") and self.classes <= 5:
                continue
            if layer.name.endswith("/classifier"):
                layer.inner_product_param.num_output = self.classes
                layer.name = layer.top[0] = f"{layer.name}_own"
            elif layer.bottom and layer.bottom[0].endswith("/classifier"):
                layer.bottom[0] = f"{layer.bottom[0]}_own"
                if layer.name == "loss3/top-1":
                    layer.name = layer.top[0] = "accuracy"
            elif layer.name == "pool5/7x7_s1":
                layer.pooling_param.Clear()
                layer.pooling_param.pool, layer.pooling_param.global_pooling = pb.PoolingParameter.AVE, True
            yield layer


def check_size(kind: str, size: int) -> None:
    """Raise a UsageError unless the network ``kind`` can take inputs of this ``size``."""
    if not _SMALLEST[kind] <= size <= _LARGEST:
        raise UsageError(f"--size: --net {kind} takes {_SMALLEST[kind]} to {_LARGEST} pixels, found {size}")


def _convolution(name: str, bottom: str, channels: int, stride: int) -> Iterator[pb.LayerParameter]:
    layer = pb.LayerParameter(name=name, type="Convolution", bottom=[bottom], top=[name])
    param = layer.convolution_param
    param.num_output, param.bias_term = channels, False
    param.kernel_size.append(3)
    param.pad.append(1)
    if stride > 1:
        param.stride.append(stride)
    param.weight_filler.type = "msra"
    yield layer
    norm = pb.LayerParameter(name=f"{name}_bn", type="BatchNorm", bottom=[name], top=[name])
    norm.batch_norm_param.moving_average_fraction = 0.9  # runs are short, so the average must follow quickly
    yield norm
    scale = pb.LayerParameter(name=f"{name}_scale", type="Scale", bottom=[name], top=[name])
    scale.scale_param.bias_term = True
    yield scale
    yield pb.LayerParameter(name=f"{name}_relu", type="ReLU", bottom=[name], top=[name])


def _shipped(name: str) -> Iterator[pb.LayerParameter]:
    """Yield the layers of an example network, without its data layers."""
    param = read_net(home() / "prototxt" / name / "train_val.prototxt").param
    return (layer for layer in param.layer if layer.bottom)
