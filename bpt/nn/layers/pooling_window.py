"""The windows of ``pooling_param``, and Caffe's rule for how many fit a bottom."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from bpt.config.proto import bpt_pb2 as pb
from bpt.graph.layer_spec import LayerSpec, Shape

FIELD = "pooling_param"


@dataclass(frozen=True)
class PoolingWindow:
    """Kernel, stride and pad, one number for each spatial axis or a single one for all.

    ``kernel`` is ``()`` for global pooling: one window over everything.
    """

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    pad: tuple[int, ...]
    ceil: bool

    @classmethod
    def read(cls, spec: LayerSpec) -> PoolingWindow:
        """Return the window as written in ``spec``; ``check`` validates it."""
        param = spec.param.pooling_param
        return cls(
            kernel=_values(spec, "kernel_size", "kernel_h", "kernel_w"),
            stride=_values(spec, "stride", "stride_h", "stride_w") or (1,),
            pad=_values(spec, "pad", "pad_h", "pad_w") or (0,),
            ceil=param.round_mode == pb.PoolingParameter.CEIL,
        )

    def check(self, spec: LayerSpec, bottom: Shape) -> None:
        """Refuse what Caffe's CHECKs refuse for a bottom ``(N, channels, spatial axes …)``.

        Raises:
            LayerError: at the field that is wrong.
        """
        axes = len(bottom) - 2
        for name, values in (("kernel", self.kernel), ("stride", self.stride), ("pad", self.pad)):
            if len(values) not in (0, 1, axes):
                raise spec.error(
                    f"{name}_h and {name}_w are for 2 spatial axes, a bottom of shape {bottom} has {axes}",
                    FIELD,
                    f"{name}_h",
                )
        if spec.param.pooling_param.global_pooling:
            if self.kernel:
                raise spec.error("global_pooling takes the whole channel; leave kernel_size out", FIELD)
            if any(self.pad) or set(self.stride) != {1}:
                raise spec.error("global_pooling takes no pad and no stride", FIELD)
            if 0 in bottom[2:]:
                raise spec.error(f"a bottom of shape {bottom} has no elements to pool", "bottom")
            return
        if not self.kernel:
            raise spec.error("needs kernel_size, or kernel_h and kernel_w, or global_pooling: true", FIELD)
        for name, values in (("kernel_size", self.kernel), ("stride", self.stride)):
            if 0 in values:
                raise spec.error(f"{name} must be at least 1, not 0", FIELD, name)
        window = self.expand(bottom[2:])
        for pad, kernel in zip(window.pad, window.kernel, strict=True):
            if pad >= kernel:
                raise spec.error(f"pad {pad} must be smaller than the kernel of {kernel}", FIELD, "pad")
        if min(window.places(bottom[2:])) < 1:
            raise spec.error(
                f"a kernel of {window.kernel} is bigger than the bottom of shape {bottom} with pad {window.pad}",
                FIELD,
                "kernel_size",
            )

    def expand(self, sizes: Sequence[int]) -> PoolingWindow:
        """Return the window with one number for each of the spatial axes of these ``sizes``."""
        axes = len(sizes)
        if len(self.kernel) == len(self.stride) == len(self.pad) == axes:
            return self
        kernel, stride, pad = (
            values * axes if len(values) == 1 else values for values in (self.kernel, self.stride, self.pad)
        )
        return replace(self, kernel=kernel or tuple(sizes), stride=stride, pad=pad)

    def places(self, sizes: Sequence[int]) -> tuple[int, ...]:
        """Return how many windows fit on each axis. The window must be expanded.

        CEIL lets the last window overhang. With a pad on any axis, a last window that would start in the far pad is
        dropped. Without one it stays, though it has no element (``PoolingLayer::Reshape``).
        """
        clips = any(self.pad)
        return tuple(self._places(*axis, clips) for axis in zip(sizes, self.kernel, self.stride, self.pad, strict=True))

    def _places(self, size: int, kernel: int, stride: int, pad: int, clips: bool) -> int:
        room = size + 2 * pad - kernel
        steps = -(-room // stride) if self.ceil else room // stride
        return steps if clips and steps * stride >= size + pad else steps + 1


def _values(spec: LayerSpec, both: str, *sides: str) -> tuple[int, ...]:
    """Return the values of ``both`` or of its two ``sides``; empty if neither is set."""
    param = spec.param.pooling_param
    given = [name for name in (both, *sides) if param.HasField(name)]
    if given and given not in ([both], list(sides)):
        raise spec.error(f"give {both}, or both {sides[0]} and {sides[1]}; not {' and '.join(given)}", FIELD, given[-1])
    return tuple(getattr(param, name) for name in given)
