"""Python: a layer of the user's own, a module of PyTorch or a layer written for pycaffe."""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parameter import UninitializedParameter

from bpt.config.proto import bpt_pb2 as pb
from bpt.graph.layer_spec import Arity, LayerShapes, LayerSpec, ParamSpec, Shape
from bpt.nn.layers.base import LAYERS, Layer
from bpt.nn.layers.graph_tracing import is_traced
from bpt.nn.layers.pycaffe_blob import OwnBlob
from bpt.nn.layers.python_class import FIELD, find_class
from bpt.nn.layers.python_errors import check_forward, notice_cut, running, setting_up
from bpt.nn.layers.python_pycaffe import PycaffeModule, is_pycaffe
from bpt.nn.pass_context import PassContext

# A blob of NaN only has just been made, and receives the module's own first values.
_UNFILLED = pb.FillerParameter(type="constant", value=math.nan)


@LAYERS.register("Python")
class Python(Layer):
    """The class ``layer`` of the module ``module`` (``find_class`` in ``python_class.py`` searches it).

    It is a ``torch.nn.Module``. It is made with ``param_str`` if its ``__init__`` has an argument of that name, and an
    attribute ``param_str`` is set. Called with the bottoms, it returns the tops: a tensor, a tuple of them, or
    ``None``. It must not change its bottoms. Blobs: its parameters in the order of ``parameters()``, then its
    persistent buffers (a BatchNorm's statistics), which a solver does not train. The module sets their first values,
    from random numbers of the run's seed. Its draws from torch in training use that seed, too; with many ranks they
    depend on the number of ranks.

    Alternatively the class has ``setup``, ``reshape``, ``forward`` and ``backward``, as pycaffe requires
    (``PycaffeModule``). Its blobs are those that ``setup`` adds.

    bpt instantiates the class once or twice for each graph to find its shapes, and then once for each net. With many
    ranks each one has a module of its own, which must treat each sample by itself.
    """

    arity = Arity(bottoms=(0, None), tops=(0, None))
    repeatable = False

    def __init__(self, spec: LayerSpec, context: PassContext) -> None:
        super().__init__(spec, context)
        with setting_up(spec, "__init__"), torch.random.fork_rng(devices=[]):
            torch.manual_seed(context.generator("python", spec.name).initial_seed())
            self.module = _make(spec)
        if isinstance(self.module, PycaffeModule):
            self.module.loss_scale = lambda: self.context.loss_scale
        if context.precision.compute != torch.float32:  # the type of modules, unless they choose another
            self.module.to(context.precision.compute)
        self.train(self.training)
        self._members = _members(self.module)  # a layer of pycaffe has none before its setup
        self._number = len(spec.tops)
        self._seen_cuts = False

    @property
    def own(self) -> object:
        """The object of the user's class."""
        return self.module.layer if isinstance(self.module, PycaffeModule) else self.module

    @classmethod
    def in_words(cls, layer: pb.LayerParameter, axes: int) -> Sequence[str]:
        return (f"{layer.python_param.module}.{layer.python_param.layer}",)

    @classmethod
    def infer(cls, spec: LayerSpec, bottoms: Sequence[Shape]) -> LayerShapes:
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            if not issubclass(find_class(spec), nn.Module):
                return _infer_pycaffe(spec, bottoms)
            try:
                with torch.device("meta"):
                    return _infer_module(spec, bottoms)
            except Exception:  # code that reads values may fail here, since it runs on zeros
                return _infer_module(spec, bottoms)

    @classmethod
    def mixes_samples(cls, spec: LayerSpec, bottoms: Sequence[Shape]) -> str:
        if spec.param.python_param.share_in_parallel:
            return "share_in_parallel asks for one object for all ranks"
        if not bottoms:
            return "a Python layer without bottoms makes whole batches"
        for name, top in zip(spec.tops, cls.infer(spec, bottoms).tops, strict=True):
            if top[:1] != bottoms[0][:1]:
                return (
                    f'its top "{name}" {top} is not one of samples, and only {spec.param.python_param.layer} knows '
                    "how to make it of all of them"
                )
        return super().mixes_samples(spec, bottoms)

    def set_up(self, bottoms: Sequence[Shape]) -> None:
        if isinstance(self.module, PycaffeModule):
            self.module.shape([np.zeros(shape, np.float32) for shape in bottoms])
            self._members = _members(self.module)

    def add_blob(self, values: nn.Parameter, shape: Shape) -> None:
        member = self._members[len(self.blobs)]
        if tuple(values.shape) != shape:
            raise self.spec.error(f"shares a parameter of shape {tuple(values.shape)}, its own has {shape}", "param")
        super().add_blob(values, shape)
        with torch.no_grad():
            if values.isnan().all():
                values.copy_(member.values)
        member.become(values)

    def forward(self, *bottoms: Tensor) -> Tensor | tuple[Tensor, ...]:
        if torch.compiler.is_compiling():  # tracers handle their own errors, and fail in code that catches them
            tops = self._run(bottoms)
        else:
            with running(self.spec, "forward"), self._seeded(bottoms):
                tops = self._run(bottoms)
            self._notice_cuts(bottoms, tops)
        return tops[0] if len(tops) == 1 else tops

    def _notice_cuts(self, bottoms: Sequence[Tensor], tops: Sequence[Tensor]) -> None:
        """Report which bottoms get no gradient, in the first pass that may be followed by a backward pass."""
        wanted = self.training and torch.is_grad_enabled() and any(bottom.requires_grad for bottom in bottoms)
        if wanted and not self._seen_cuts and not is_traced():
            self._seen_cuts = True
            notice_cut(self.spec, bottoms, tops)

    @contextmanager
    def _seeded(self, bottoms: Sequence[Tensor]) -> Iterator[None]:
        """Seed torch's draws inside, such as those of an ``nn.Dropout`` in training, by this pass of the run."""
        if not self.training:
            yield
            return
        start = self.share_of(bottoms[0]).start if bottoms else 0
        with torch.random.fork_rng(devices=[bottom.device for bottom in bottoms if bottom.is_cuda]):
            torch.manual_seed(self.context.pass_generator("python pass", self.spec.name, start).initial_seed())
            yield

    def _run(self, bottoms: Sequence[Tensor]) -> tuple[Tensor, ...]:
        buffers = [pair for pair in zip(self._members, self.blobs, strict=True) if not pair[0].is_parameter]
        with torch.no_grad():
            for member, blob in buffers:
                member.values.copy_(blob)
        dtype = bottoms[0].dtype if bottoms else self.context.precision.compute
        tops = _tops(self.spec, self._number, self.module(*bottoms), dtype)
        with torch.no_grad():
            for member, blob in buffers if self.training else ():
                blob.copy_(member.values)
        return tops


@dataclass
class _Member:
    """A parameter or a buffer of a module, with the attributes that refer to it."""

    places: list[tuple[nn.Module, str]]
    is_parameter: bool

    @property
    def values(self) -> Tensor:
        owner, name = self.places[0]
        values: Tensor = getattr(owner, name)
        return values

    def become(self, values: nn.Parameter) -> None:
        """Let the module compute with ``values``, which a net holds. A buffer stays the module's own."""
        for owner, name in self.places if self.is_parameter else ():
            setattr(owner, name, values)


@dataclass
class _OwnMember:
    """A parameter of a layer of pycaffe."""

    blob: OwnBlob
    is_parameter = True

    @property
    def values(self) -> Tensor:
        return self.blob.values

    def become(self, values: nn.Parameter) -> None:
        self.blob.belong_to(values)


def _members(module: nn.Module) -> Sequence[_Member | _OwnMember]:
    """Return the parameters, in the order of ``parameters()``, then the persistent buffers."""
    if isinstance(module, PycaffeModule):
        return [_OwnMember(blob) for blob in module.blobs]
    found: dict[int, _Member] = {}
    for is_parameter in (True, False):
        for owner in module.modules():
            for name, values in (owner._parameters if is_parameter else owner._buffers).items():
                if values is not None and name not in owner._non_persistent_buffers_set:
                    found.setdefault(id(values), _Member([], is_parameter)).places.append((owner, name))
    return list(found.values())


def _make(spec: LayerSpec) -> nn.Module:
    """Return an instance of the user's class for this layer."""
    param = spec.param.python_param
    kind = find_class(spec)
    if is_pycaffe(kind) and not issubclass(kind, nn.Module):
        return PycaffeModule(spec, kind)
    if not issubclass(kind, nn.Module):
        raise spec.error(
            f"{param.layer} is neither a torch.nn.Module nor a layer as of pycaffe, with setup, reshape and forward",
            FIELD,
            "layer",
        )
    takes_it = "param_str" in inspect.signature(kind).parameters
    module: nn.Module = kind(param_str=param.param_str) if takes_it else kind()
    if not hasattr(module, "param_str"):
        module.param_str = param.param_str  # type: ignore[assignment]  # any attribute may be set on a module
    if any(isinstance(values, UninitializedParameter) for values in module.parameters()):
        raise spec.error(f"{param.layer} has lazy parameters; give the sizes of its bottoms in param_str", FIELD)
    return module


def _infer_module(spec: LayerSpec, bottoms: Sequence[Shape]) -> LayerShapes:
    """Return the shapes that a module gives for zeros, on the current default device."""
    with setting_up(spec, "__init__"):
        module = _make(spec).train(spec.param.phase == pb.TRAIN)
    check_forward(spec, module)
    params = tuple(
        ParamSpec(tuple(member.values.shape), _UNFILLED, member.is_parameter and member.values.requires_grad)
        for member in _members(module)
    )
    zeros = [torch.zeros(shape, dtype=torch.float32) for shape in bottoms]
    with setting_up(spec, "forward"):
        tops = _tops(spec, len(spec.tops), module(*zeros), torch.float32)
    if any(bottom._version for bottom in zeros):
        raise spec.error("changes its bottom in place; other layers may read it", FIELD, "layer")
    return LayerShapes(tuple(tuple(top.shape) for top in tops), params)


def _infer_pycaffe(spec: LayerSpec, bottoms: Sequence[Shape]) -> LayerShapes:
    if set(spec.tops) & set(spec.bottoms):
        raise spec.error("a layer written for pycaffe cannot work in place; give the top a name of its own", "top")
    with setting_up(spec, "setup"):
        module = _make(spec)
        assert isinstance(module, PycaffeModule)
        tops = module.shape([np.zeros(shape, np.float32) for shape in bottoms])
        missing = "" if module.has_backward else f"{spec.param.python_param.layer} has no backward"
        params = tuple(ParamSpec(blob.shape, _UNFILLED) for blob in module.blobs)
        return LayerShapes(tuple(tops), params, forward_only=missing)


def _tops(spec: LayerSpec, number: int, result: object, dtype: torch.dtype) -> tuple[Tensor, ...]:
    """Return the result of ``forward`` as this number of tops, all floating point; other numbers become ``dtype``."""
    listed = () if result is None else (result,) if isinstance(result, Tensor) else result
    if not isinstance(listed, tuple | list) or not all(isinstance(top, Tensor) for top in listed):
        kind = spec.param.python_param.layer
        raise spec.error(f"{kind} must return a tensor or a tuple of tensors, not {_show(result)}", FIELD, "layer")
    if len(listed) != number:
        kind = spec.param.python_param.layer
        returned = "1 tensor" if len(listed) == 1 else f"{len(listed)} tensors"
        named = "1 top is" if number == 1 else f"{number} tops are"
        raise spec.error(f"{kind} returns {returned}, and {named} named", "top")
    return tuple(top if top.is_floating_point() else top.to(dtype) for top in listed)


def _show(result: object) -> str:
    if isinstance(result, tuple | list):
        return f"a {type(result).__name__} of {', '.join(type(one).__name__ for one in result)}"
    return type(result).__name__
