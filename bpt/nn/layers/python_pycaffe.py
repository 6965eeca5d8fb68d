"""Layers written for pycaffe (``class MyLayer(caffe.Layer)``) as modules of PyTorch.

They have ``setup``, ``reshape``, ``forward`` and ``backward``, and read and write the numpy arrays of blobs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from bpt.base.errors import RunError
from bpt.graph.layer_spec import LayerSpec, Shape
from bpt.nn.layers.pycaffe_blob import Array, OwnBlobs, PycaffeBlob
from bpt.nn.layers.python_errors import running, setting_up

Explain = Callable[[LayerSpec, str], AbstractContextManager[None]]
"""The context manager for the user's errors: ``setting_up`` before the run, ``running`` in it."""


class PycaffeLayer:
    """``caffe.Layer``, the base class of layers that are written for pycaffe."""

    type = "Python"
    param_str: str
    param_str_: str
    phase: int
    blobs: OwnBlobs


def is_pycaffe(found: type) -> bool:
    """Return whether a class derives from ``caffe.Layer``, or has the methods that pycaffe requires of a layer."""
    asked = ("setup", "reshape", "forward")
    return issubclass(found, PycaffeLayer) or all(callable(getattr(found, name, None)) for name in asked)


class PycaffeModule(nn.Module):
    """A pycaffe layer as a module.

    Bottoms and tops are the same objects in all passes, as in Caffe. The layer may keep values between a forward pass
    and its backward pass, so only the last forward pass can be followed by a backward pass.
    """

    def __init__(self, spec: LayerSpec, kind: type) -> None:
        super().__init__()
        self.spec = spec
        with setting_up(spec, "__init__"):
            self.layer = kind()
        self.layer.param_str = self.layer.param_str_ = spec.param.python_param.param_str  # param_str_ until 2015
        self.layer.phase = spec.param.phase
        self.blobs = self.layer.blobs = OwnBlobs()
        self.bottoms: list[PycaffeBlob] = []
        self.tops = [PycaffeBlob(np.zeros((), np.float32)) for _ in spec.tops]
        self.is_set_up = False
        self.passes = 0
        self.loss_scale: Callable[[], float] = lambda: 1.0  # that of the current pass

    @property
    def has_backward(self) -> bool:
        return callable(getattr(self.layer, "backward", None))

    def shape(self, bottoms: Sequence[Array], explain: Explain = setting_up) -> list[Shape]:
        """Copy the bottoms' data, and let the layer set the shapes of its tops.

        Args:
            explain: the context manager that translates errors of the layer's code.
        """
        if len(self.bottoms) != len(bottoms):
            self.bottoms = [PycaffeBlob(data) for data in bottoms]
        for blob, data in zip(self.bottoms, bottoms, strict=True):
            data.flags.writeable = False  # other layers share it
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
        parameters = [blob.values for blob in self.blobs]
        tops: tuple[Tensor, ...] = _Run.apply(self, bottoms, *bottoms, *parameters)  # type: ignore[no-untyped-call]
        return tops


class _Run(torch.autograd.Function):
    """One pass of the layer; its differentiable inputs are the bottoms, then the parameters."""

    @staticmethod
    def forward(ctx: Any, module: PycaffeModule, bottoms: Sequence[Tensor], *inputs: Tensor) -> tuple[Tensor, ...]:
        for blob in module.blobs:
            blob.begin_pass()
        module.shape([bottom.detach().cpu().contiguous().numpy() for bottom in bottoms], running)
        module.passes += 1
        ctx.module, ctx.number = module, module.passes
        ctx.kinds = [(tensor.device, tensor.dtype) for tensor in inputs]
        module.layer.forward(module.bottoms, module.tops)
        for blob in module.blobs:
            blob.end_pass()
        device, dtype = ctx.kinds[0] if bottoms else (torch.device("cpu"), torch.float32)
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
        scale = module.loss_scale()  # a loss that ignores its top's diff is scaled nevertheless
        for top, diff in zip(module.tops, diffs, strict=True):
            top.diff[...] = diff.cpu().numpy() / scale
        wanted = list(ctx.needs_input_grad[2:])
        for bottom in module.bottoms:
            bottom.diff[...] = 0
        for blob in module.blobs:
            blob.begin_backward()
        try:
            with running(module.spec, "backward"):
                module.layer.backward(module.tops, wanted[: len(module.bottoms)], module.bottoms)
        finally:
            own = [blob.end_backward() for blob in module.blobs]
        gradients = [*(bottom.diff for bottom in module.bottoms), *own]
        return (
            None,
            None,
            *(
                torch.tensor(gradient, dtype=dtype, device=device) * scale if wants else None
                for gradient, (device, dtype), wants in zip(gradients, ctx.kinds, wanted, strict=True)
            ),
        )
