"""The operations that replace several layers. They refer to the layers, which keep their parameters and settings."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Generic, Protocol, TypeVar

import torch
from torch import Tensor
from torch.nn import functional

from bpt.config.precision import narrowed
from bpt.nn.kernels.channels_last import channels_last, is_channels_last
from bpt.nn.kernels.packed import PackedConvolution, PackedProduct
from bpt.nn.kernels.recording import plain_shape
from bpt.nn.layers import Layer
from bpt.nn.layers.activation import ReLU
from bpt.nn.layers.channel_affine import ChannelAffine, Weights
from bpt.nn.layers.convolution import Convolution
from bpt.nn.layers.eltwise import Eltwise
from bpt.nn.layers.inner_product import InnerProduct
from bpt.nn.layers.pooling import Pooling

FEW = 1_000_000  # weights whose copies take little memory
TINY = 100_000  # weights whose product with one row takes less time than the start of a compiled kernel

Packed = TypeVar("Packed")


class Operation(Protocol):
    """A replacement that runs several layers as one.

    Attributes:
        layers: its layers. If a caller observes one of them by a torch hook, they run one by one.
        top_is_free: as in Layer.
    """

    layers: tuple[Layer, ...]
    top_is_free: bool

    def __call__(self, *bottoms: Tensor) -> Tensor | None:
        """Return the top of the last layer; ``None`` if the layers cannot run as one now. Then nothing was done."""


class Overwriting:
    """A layer that writes its top over a bottom which nobody else needs. This saves memory and traffic.

    It does not write over a view, since autograd would copy the tensor below.
    """

    def __init__(self, layer: Layer, place: int, makers: Sequence[Layer]) -> None:
        self.layers: tuple[Layer, ...] = (layer, *makers)
        self._layer, self._place = layer, place
        self.top_is_free = layer.top_is_free

    def __call__(self, *bottoms: Tensor) -> Tensor | None:
        return None if bottoms[self._place]._is_view() else self._layer.overwrite(self._place, *bottoms)


class MaxThenReLU:
    """A ReLU before max pooling, in reverse order: it picks the same elements, and the ReLU reads fewer.

    The diffs are the same, too. If a window's maximum is above 0, its first place does not change. Otherwise the ReLU
    gave 0 for all of the window, and stops the diff in either order.
    """

    top_is_free = False

    def __init__(self, relu: ReLU, pooling: Pooling) -> None:
        self.layers: tuple[Layer, ...] = relu, pooling
        self._relu, self._pooling = relu, pooling

    def __call__(self, *bottoms: Tensor) -> Tensor | None:
        top = self._pooling(*bottoms)
        return self._relu(top) if top._is_view() else self._relu.overwrite(0, top)


class FoldedAffine:
    """A layer that has the factors and summands by channel of the following layers in its own weights."""

    def __init__(self, head: Layer, affines: Sequence[Layer]) -> None:
        self.layers: tuple[Layer, ...] = (head, *affines)
        self.top_is_free = head.top_is_free
        self._head, self._affines = head, tuple(affines)

    def __call__(self, *bottoms: Tensor) -> Tensor | None:
        affine = _joint_affine(self._affines)
        return None if affine is None else self._head.forward_by(self._head.folded(affine), bottoms[0])


class PreparedOperation(Operation, Generic[Packed]):
    """An operation by weights that its first pass computes and packs."""

    def __init__(self) -> None:
        self._weights: Weights | None = None
        self._packed: Packed | None = None

    @property
    def is_prepared(self) -> bool:
        return self._weights is not None

    def release(self) -> None:
        """Free what was prepared; the next pass prepares it again."""
        self._weights = self._packed = None

    def gain(self) -> tuple[float, float]:
        """Return numbers a and b such that the product is at most ``a · max |x| + b``; it must have run before."""
        assert self._weights is not None
        weight, bias = _detached(self._weights)
        return float(weight.abs().flatten(1).sum(1).max()), 0.0 if bias is None else float(bias.abs().max())

    @abstractmethod
    def by_plain_operators(self) -> Callable[..., Tensor]:
        """Return a function that does the same by torch's public operators; it must have run before."""


class PreparedConvolution(PreparedOperation[PackedConvolution]):
    """A convolution with the following affine layers in its weights, as FoldedAffine; computed and packed once.

    It serves passes without gradients, while no parameter changes. Images become channels-last on a CPU.

    Args:
        total: then, the sum with another blob, which is the second bottom.
        relu: a ReLU after all others.
        holders: the layers that have that other blob's memory, if it may be overwritten; else none.
    """

    def __init__(
        self,
        head: Convolution,
        affines: Sequence[Layer],
        total: Eltwise | None = None,
        relu: ReLU | None = None,
        holders: Sequence[Layer] = (),
    ) -> None:
        super().__init__()
        behind = [layer for layer in (total, relu) if layer is not None]
        self.layers: tuple[Layer, ...] = (head, *affines, *behind, *holders)
        self.top_is_free = relu is None
        self._head, self._affines, self._total, self._relu = head, tuple(affines), total, relu
        self._over = bool(holders)

    def __call__(self, *bottoms: Tensor) -> Tensor | None:
        bottom = bottoms[0]
        if bottom.dim() == 4 and bottom.device.type == "cpu":
            bottom = channels_last(bottom)
        if self._weights is None:
            affine = _joint_affine(self._affines)
            if affine is None:
                return None
            weight, bias = self._head.folded(affine)
            assert weight is not None
            self._weights = narrowed(weight, bottom), None if bias is None else narrowed(bias, bottom)
            self._packed = self._head.packed(self._weights, bottom)
        if self._packed is not None:
            top = self._packed(bottom, bottoms[1] if self._total is not None else None, self._over)
        else:
            top = self._head.forward_by(self._weights, bottom)
            if self._total is not None:
                top = self._total.overwrite(0, top, bottoms[1])
        return top if self._relu is None else self._relu.overwrite(0, top)

    def by_plain_operators(self) -> Callable[..., Tensor]:
        assert self._weights is not None
        weight, bias = _detached(self._weights)
        axes, window, group = weight.dim() - 2, self._head.window, self._head.group
        stride, pad, dilation = (
            tuple(each) * (axes // len(each)) for each in (window.stride, window.pad, window.dilation)
        )
        adds, relu = self._total is not None, self._relu is not None

        def call(*bottoms: Tensor) -> Tensor:
            (bottom, *_), images = bottoms, axes == 2 and not is_channels_last(bottoms[0])
            bottom = channels_last(bottom) if images else bottom
            top = torch.convolution(bottom, weight, bias, stride, pad, dilation, False, (0,) * axes, group)
            top = top + bottoms[1] if adds else top
            return torch.relu(top) if relu else top

        return call


class PreparedProduct(PreparedOperation[PackedProduct]):
    """An InnerProduct by weights that are packed once, for the same passes as PreparedConvolution.

    If the bottom is channels-last and the weights are few, their columns are in the order of its memory: this needs a
    copy of them, but none of each bottom.

    Args:
        relu: a ReLU after it.
    """

    def __init__(self, head: InnerProduct, relu: ReLU | None) -> None:
        super().__init__()
        self.layers: tuple[Layer, ...] = (head,) if relu is None else (head, relu)
        self.top_is_free = relu is None
        self._head, self._relu = head, relu
        self._channels_last = False

    def __call__(self, *bottoms: Tensor) -> Tensor | None:
        bottom = bottoms[0]
        if self._weights is None:
            weight, bias = self._head.weights_for(bottom)
            assert weight is not None
            self._channels_last = self._head.axis == 1 and is_channels_last(bottom) and weight.numel() <= FEW
            if self._channels_last:
                weight = weight.reshape(len(weight), bottom.shape[1], -1).transpose(1, 2).flatten(1)
            self._weights = weight, bias
            self._packed = self._head.packed(self._weights, self._flat(bottom))
        flat = self._flat(bottom)
        fits = self._packed is not None and self._packed.rows == len(flat)
        top = self._packed(flat) if self._packed is not None and fits else self._head.forward_by(self._weights, flat)
        return top if self._relu is None else self._relu.overwrite(0, top)

    def _flat(self, bottom: Tensor) -> Tensor:
        """Return the bottom with the axes of a sum as one, in the order of the weights' columns."""
        ordered = bottom.movedim(1, -1) if self._channels_last else bottom
        return ordered if ordered.dim() == self._head.axis + 1 else ordered.flatten(self._head.axis)

    def by_plain_operators(self) -> Callable[..., Tensor]:
        assert self._weights is not None
        weight, bias = _detached(self._weights)
        relu = self._relu is not None

        def call(*bottoms: Tensor) -> Tensor:
            flat = self._flat(bottoms[0])
            if bias is not None and weight.numel() <= TINY and plain_shape(flat)[:-1] == (1,):
                top = torch.addmv(bias, weight, flat.squeeze(0)).unsqueeze(0)
            else:
                top = functional.linear(flat, weight, bias)
            return torch.relu(top) if relu else top

        return call


def _detached(weights: Weights) -> tuple[Tensor, Tensor | None]:
    weight, bias = weights
    assert weight is not None
    return weight.detach(), None if bias is None else bias.detach()


def _joint_affine(affines: Sequence[Layer]) -> ChannelAffine | None:
    """Return the joint affine of successive layers, if each of them has a ``channel_affine``."""
    together = ChannelAffine()
    for layer in affines:
        own = layer.channel_affine()
        if own is None:
            return None
        together = together.then(own)
    return together
