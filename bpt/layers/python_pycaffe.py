"""Layers written for pycaffe (``class MyLayer(caffe.Layer)``) as modules of PyTorch.

They have ``setup``, ``reshape``, ``forward`` and ``backward``, and read and write the numpy arrays of blobs.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from types import ModuleType
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from bpt.errors import RunError
from bpt.graph.spec import LayerSpec, Shape, count
from bpt.layers.python_errors import running, setting_up

Array = NDArray[Any]
Explain = Callable[[LayerSpec, str], AbstractContextManager[None]]
"""``setting_up`` before the run, ``running`` in it."""


class PycaffeLayer:
    """What ``caffe.Layer`` is to a module that is imported by bpt."""

    param_str: str
    param_str_: str
    phase: int


@contextmanager
def caffe_for_import() -> Iterator[None]:
    """Inside, ``import caffe`` gives a module with ``Layer``, ``TRAIN`` and ``TEST``, and nothing else.

    A real one is not used, even if there is one: its ``Layer`` can only be made by Caffe itself.
    """
    stand_in = ModuleType("caffe")
    vars(stand_in).update(Layer=PycaffeLayer, TRAIN=0, TEST=1)
    before = sys.modules.get("caffe")
    sys.modules["caffe"] = stand_in
    try:
        yield
    finally:
        del sys.modules["caffe"]
        if before is not None:
            sys.modules["caffe"] = before


def is_pycaffe(found: type) -> bool:
    """Whether a class has what pycaffe asks of a layer."""
    return all(callable(getattr(found, name, None)) for name in ("setup", "reshape", "forward"))


class PycaffeBlob:
    """A bottom or a top: ``data`` and ``diff`` are arrays of one shape; a bottom's ``data`` can only be read."""

    def __init__(self, data: Array) -> None:
        self.data = data
        self._diff: Array | None = None

    @property
    def diff(self) -> Array:
        """Zeros until something is written."""
        if self._diff is None or self._diff.shape != self.data.shape:
            self._diff = np.zeros_like(self.data)
        return self._diff

    @property
    def shape(self) -> Shape:
        return self.data.shape

    @property
    def count(self) -> int:
        return self.data.size

    @property
    def num(self) -> int:
        return self._legacy(0)

    @property
    def channels(self) -> int:
        return self._legacy(1)

    @property
    def height(self) -> int:
        return self._legacy(2)

    @property
    def width(self) -> int:
        return self._legacy(3)

    def _legacy(self, axis: int) -> int:
        return self.data.shape[axis] if axis < self.data.ndim else 1

    def reshape(self, *shape: int) -> None:
        """Give a top another shape; what was in it is lost if its number of elements changes."""
        if tuple(shape) != self.shape:
            kept = count(shape) == self.count
            self.data = self.data.reshape(shape) if kept else np.zeros(shape, self.data.dtype)

    def reshape_like(self, other: PycaffeBlob) -> None:
        """Give a top the shape of another blob."""
        self.reshape(*other.shape)


class NoBlobs:
    """The ``blobs`` of a layer: parameters are for modules of PyTorch only."""

    def add_blob(self, *shape: int) -> None:
        raise NotImplementedError(
            "self.blobs.add_blob: bpt trains the parameters of a torch.nn.Module; write the layer as one"
        )

    def __len__(self) -> int:
        return 0


class PycaffeModule(nn.Module):
    """A pycaffe layer as a module.

    Bottoms and tops are the same objects in all passes, as in Caffe, and the layer may keep what it likes between a
    forward and its backward pass. So only the last forward pass can be gone backward.
    """

    def __init__(self, spec: LayerSpec, kind: type) -> None:
        super().__init__()
        self.spec = spec
        with setting_up(spec, "__init__"):
            self.layer = kind()
        self.layer.param_str = self.layer.param_str_ = spec.param.python_param.param_str  # param_str_ until 2015
        self.layer.phase = spec.param.phase
        self.layer.blobs = NoBlobs()
        self.bottoms: list[PycaffeBlob] = []
        self.tops = [PycaffeBlob(np.zeros((), np.float32)) for _ in spec.tops]
        self.is_set_up = False
        self.passes = 0
        self.loss_scale: Callable[[], float] = lambda: 1.0  # of the pass under way

    @property
    def has_backward(self) -> bool:
        return callable(getattr(self.layer, "backward", None))

    def shape(self, bottoms: Sequence[Array], explain: Explain = setting_up) -> list[Shape]:
        """Take over the bottoms' data, and let the layer tell the shapes of its tops.

        Args:
            explain: what becomes of errors in the layer's code.
        """
        if len(self.bottoms) != len(bottoms):
            self.bottoms = [PycaffeBlob(data) for data in bottoms]
        for blob, data in zip(self.bottoms, bottoms, strict=True):
            data.flags.writeable = False  # it belongs to other layers, too
            blob.data = data
        for top in self.tops if bottoms else ():
            top.data = top.data.astype(bottoms[0].dtype, copy=False)
        if not self.is_set_up:
            with explain(self.spec, "setup"):
                self.layer.setup(self.bottoms, self.tops)
            self.is_set_up = True
        with explain(self.spec, "reshape"):
            self.layer.reshape(self.bottoms, self.tops)
        return [top.shape for top in self.tops]

    def forward(self, *bottoms: Tensor) -> tuple[Tensor, ...]:
        tops: tuple[Tensor, ...] = _Run.apply(self, *bottoms)  # type: ignore[no-untyped-call]
        return tops


class _Run(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, module: PycaffeModule, *bottoms: Tensor) -> tuple[Tensor, ...]:
        module.shape([bottom.detach().cpu().contiguous().numpy() for bottom in bottoms], running)
        module.passes += 1
        ctx.module, ctx.number = module, module.passes
        ctx.devices = [(bottom.device, bottom.dtype) for bottom in bottoms]
        module.layer.forward(module.bottoms, module.tops)
        device, dtype = ctx.devices[0] if bottoms else (torch.device("cpu"), torch.float32)
        return tuple(torch.tensor(top.data, dtype=dtype, device=device) for top in module.tops)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *diffs: Tensor) -> tuple[Tensor | None, ...]:
        module: PycaffeModule = ctx.module
        if ctx.number != module.passes:
            raise RunError(
                f'layer "{module.spec.name}": a layer written for pycaffe remembers its last forward pass only, and '
                "this is the backward pass of an earlier one; write it as a torch.nn.Module"
            )
        if not module.has_backward:
            raise RunError(f'layer "{module.spec.name}": {type(module.layer).__name__} has no backward')
        scale = module.loss_scale()  # a loss that takes no heed of its top's diff is scaled all the same
        for top, diff in zip(module.tops, diffs, strict=True):
            top.diff[...] = diff.cpu().numpy() / scale
        wanted = list(ctx.needs_input_grad[1:])
        for bottom in module.bottoms:
            bottom.diff[...] = 0
        with running(module.spec, "backward"):
            module.layer.backward(module.tops, wanted, module.bottoms)
        return None, *(
            torch.tensor(bottom.diff, dtype=dtype, device=device) * scale if wants else None
            for bottom, (device, dtype), wants in zip(module.bottoms, ctx.devices, wanted, strict=True)
        )
