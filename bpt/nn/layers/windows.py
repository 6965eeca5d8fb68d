"""Sliding windows: kernel, stride, pad and dilation as ``convolution_param`` gives them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bpt.config.proto import bpt_pb2 as pb
from bpt.graph.layer_spec import LayerSpec, Shape

FIELD = "convolution_param"


@dataclass(frozen=True)
class ConvolutionWindow:
    """The window of a convolution, one number for each spatial axis or a single one for all.

    ``read`` takes them from the text; ``expand`` then fits them to a bottom.
    """

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    pad: tuple[int, ...]
    dilation: tuple[int, ...]

    @classmethod
    def read(cls, spec: LayerSpec) -> ConvolutionWindow:
        """Return the window as written in ``spec``.

        Raises:
            LayerError: no kernel, a zero, or a value given both ways (``kernel_size`` and ``kernel_h``).
        """
        window = cls(
            kernel=_per_side(spec, "kernel_size", "kernel_h", "kernel_w") or _values(spec, "kernel_size"),
            stride=_per_side(spec, "stride", "stride_h", "stride_w") or _values(spec, "stride") or (1,),
            pad=_per_side(spec, "pad", "pad_h", "pad_w") or _values(spec, "pad") or (0,),
            dilation=_values(spec, "dilation") or (1,),
        )
        if not window.kernel:
            raise spec.error("needs kernel_size, or kernel_h and kernel_w", FIELD)
        for name, values in (("kernel_size", window.kernel), ("stride", window.stride), ("dilation", window.dilation)):
            if 0 in values:
                raise spec.error(f"{name} must be at least 1, not 0", FIELD, name)
        return window

    def expand(self, spec: LayerSpec, bottom: Shape, first: int) -> ConvolutionWindow:
        """Return the window with one number for each axis of ``bottom`` from axis ``first`` on.

        Raises:
            LayerError: a value is given neither once nor once an axis.
        """
        axes = len(bottom) - first
        given = {"kernel_size": self.kernel, "stride": self.stride, "pad": self.pad, "dilation": self.dilation}
        for name, values in given.items():
            if len(values) in (1, axes):
                continue
            if not getattr(spec.param.convolution_param, name):  # so it came from kernel_h or another side
                stem = name.removesuffix("_size")
                raise spec.error(
                    f"{stem}_h and {stem}_w are for 2 spatial axes, a bottom of shape {bottom} has {axes}", FIELD
                )
            raise spec.error(
                f"{name} must be given once, or once a spatial axis ({axes} in shape {bottom}), "
                f"not {len(values)} times",
                FIELD,
                name,
            )
        return ConvolutionWindow(*(values * axes if len(values) == 1 else values for values in given.values()))

    def places(self, sizes: Sequence[int]) -> tuple[int, ...]:
        """Return how many windows fit on each axis of these sizes; below 1 means none. The window must be expanded."""
        axes = zip(sizes, self.pad, self.extent, self.stride, strict=True)
        return tuple((size + 2 * pad - extent) // stride + 1 for size, pad, extent, stride in axes)

    def spread(self, places: Sequence[int]) -> tuple[int, ...]:
        """Return the least sizes on which this number of windows fits; below 1 means pads only.

        The window must be expanded.
        """
        axes = zip(places, self.pad, self.extent, self.stride, strict=True)
        return tuple(stride * (place - 1) + extent - 2 * pad for place, pad, extent, stride in axes)

    @property
    def extent(self) -> tuple[int, ...]:
        """The reach of the window on each axis: its kernel with the gaps of dilation."""
        return tuple(d * (k - 1) + 1 for k, d in zip(self.kernel, self.dilation, strict=True))


def _values(spec: LayerSpec, field: str) -> tuple[int, ...]:
    return tuple(getattr(spec.param.convolution_param, field))


def _per_side(spec: LayerSpec, both: str, *sides: str) -> tuple[int, ...]:
    """Return the values of ``sides`` (``kernel_h``, ``kernel_w``); empty if neither is set."""
    param = spec.param.convolution_param
    given = [side for side in sides if param.HasField(side)]
    if not given:
        return ()
    if getattr(param, both):
        raise spec.error(f"give {both}, or {sides[0]} and {sides[1]}, not both", FIELD, given[0])
    if len(given) == 1 and both != "pad":  # a pad with only one side is 0 on the other
        raise spec.error(f"{given[0]} is given alone; {sides[0]} and {sides[1]} go together", FIELD, given[0])
    return tuple(getattr(param, side) for side in sides)


def kernel_in_words(param: pb.ConvolutionParameter | pb.PoolingParameter, axes: int) -> str:
    """Return the kernel as ``3×3``; empty if the text does not give it.

    Args:
        axes: the number of spatial axes, for a size that is given once.
    """
    sizes = _sizes(param, "kernel_size", "kernel")
    return "×".join(map(str, sizes * axes if len(sizes) == 1 else sizes))


def steps_in_words(param: pb.ConvolutionParameter | pb.PoolingParameter) -> list[str]:
    """Return stride, pad and dilation as words, where they are not 1 or 0: ``stride 2``."""
    found = []
    for name, usual in (("stride", 1), ("pad", 0), ("dilation", 1)):
        sizes = _sizes(param, name, name)
        if sizes and set(sizes) != {usual}:
            shown = sizes[:1] if len(set(sizes)) == 1 else sizes
            found.append(f"{name} {'×'.join(map(str, shown))}")
    return found


def _sizes(param: pb.ConvolutionParameter | pb.PoolingParameter, field: str, short: str) -> list[int]:
    """Return the sizes along the axes; [] if the text has none, or a size of 0."""
    if getattr(param, f"{short}_h", 0) or getattr(param, f"{short}_w", 0):
        return [getattr(param, f"{short}_h"), getattr(param, f"{short}_w")]
    value = getattr(param, field, ())
    return [value] * bool(value) if isinstance(value, int) else list(value)
