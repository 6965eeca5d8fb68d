"""Module: a net as an ``nn.Module``, for use in any PyTorch program."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from bpt.apps.arguments import Path, checked_path
from bpt.apps.pictures.prepared import prepare_files
from bpt.apps.torch_module.fitting import Fitting
from bpt.apps.torch_module.loading import load_files
from bpt.apps.torch_module.pickled import ModuleState, Values, made_again, parameters_of, parts_of, set_state, state_of
from bpt.base.errors import RunError
from bpt.base.malloc_settings import keep_freed_memory
from bpt.config.plan.nets import NetPlan
from bpt.config.precision import FLOAT32, Precision
from bpt.config.proto import bpt_pb2 as pb
from bpt.nn import net as core
from bpt.nn.kernels.recording import is_compiling_or_tracing
from bpt.nn.layers.graph_tracing import not_compiled
from bpt.nn.net import Net
from bpt.nn.net_graph import build_graph_of
from bpt.nn.pass_context import PassContext
from bpt.system.device import CPU
from bpt.system.device.torch_errors import is_out_of_memory
from bpt.train.runtime.half_precision import net_in
from bpt.train.state import MissingWeights


class Module(nn.Module):
    """A net that takes a tensor for each of ``inputs`` and returns ``outputs``: one tensor, or a tuple of tensors.

    ``inputs`` and ``outputs`` are lists of names; ``outputs`` is sorted. The children are the layers under their names,
    so parameters are called ``conv1.blobs.0`` (weights) and ``conv1.blobs.1`` (bias). Dots in a layer's name, which
    torch forbids, become ``_``. So do quotes and backslashes, which torch's exporter cannot read. A name that torch or
    another layer uses already gets the suffix ``_``.

    A Module can be copied and pickled. The pickle has the net's text and its parameters, without the files that the
    text names.
    """

    def __init__(self, net: core.Net, plan: NetPlan, weights: Sequence[str] = ()) -> None:
        super().__init__()
        self.inputs = list(net.graph.inputs)
        self.outputs = [edge.blob for edge in net.graph.outputs]
        self._net = (net,)  # in a tuple, so that the layers are not registered twice
        self._plan = plan
        self._weights = list(weights)  # the files that parameters come from
        self._parts = parts_of(net)
        self._fitting = Fitting(net.graph, plan)
        for node in net.graph.nodes:
            name = re.sub(r'["\\\\\n.]', "_", node.name) or f"layer{node.index}"
            while hasattr(self, name):
                name += "_"
            self.add_module(name, net.layer(node))
        self.training = net.training

    def forward(self, *inputs: Tensor) -> Tensor | tuple[Tensor, ...]:
        if is_compiling_or_tracing():  # tracers replace shapes by symbols, and cannot trace exception handlers
            return self._run(*inputs)
        self._fitting.check(inputs)
        try:
            return self._run(*inputs)
        except RunError as error:
            if not is_out_of_memory(error.__cause__ or error):
                self._fitting.explain_dtype(inputs, self.parameters(), error)
            raise

    def preprocess(self, *images: Path, preprocessing: Path = "") -> Tensor:
        """Return image files as a batch for the module's input, prepared as by ``bpt classify``.

        See ``Net.preprocess``. An example::

            module(module.preprocess("cat.jpg"))

        Raises:
            UserError: nothing says how images are prepared, or the settings do not fit the net.
            FileError: a file is missing or no image; the error names it.
        """
        return torch.from_numpy(
            prepare_files(
                self._plan,
                self._weights,
                [checked_path(each, "an image") for each in images],
                checked_path(preprocessing, "preprocessing"),
            )
        )

    def fixed_parameters(self) -> AbstractContextManager[None]:
        """Return a context in which no parameter changes, which makes evaluation without gradients faster.

        Inside it, BatchNorm, Scale and Bias are folded into the convolutions before them, and the processor's layout of
        weights is prepared once. On a CPU, images are channels-last, and outputs may be, too. A change of parameters
        has no effect until the end of the context. From the first call on, the process keeps freed memory for reuse, as
        the command line does.

            with module.eval().fixed_parameters(), torch.inference_mode():
                scores = [module(batch) for batch in batches]
        """
        (net,) = self._net
        keep_freed_memory()
        return net.fixed_parameters()

    def __reduce__(self) -> tuple[Callable[..., Module], tuple[object, ...], tuple[dict[str, Any], ModuleState]]:
        (net,) = self._net
        clock = net.context.seed, net.context.iteration, net.context.pass_number
        numbers = net.context.precision, net.precision.layers_in_half()
        own: dict[str, Any] = self.__getstate__()  # type: ignore[no-untyped-call]  # torch's
        layers = set(net.layers)
        own["_modules"] = {name: child for name, child in self._modules.items() if child not in layers}
        for name in ("_net", "_plan", "_fitting"):
            del own[name]
        arguments = type(self), self._plan, parameters_of(net, self._parts), *clock, *numbers
        return _unpickled, arguments, (own, state_of(net))

    def __setstate__(self, state: tuple[dict[str, Any], ModuleState]) -> None:
        own, of_layers = state
        (net,) = self._net
        own["_modules"] = self._modules | own["_modules"]
        super().__setstate__(own)  # type: ignore[no-untyped-call]
        set_state(net, of_layers)

    def __deepcopy__(self, memo: dict[int, object]) -> Module:
        copied = memo[id(self)] = type(self).__new__(type(self))
        own = copy.deepcopy(self.__getstate__(), memo)  # type: ignore[no-untyped-call]
        nn.Module.__setstate__(copied, own)  # type: ignore[no-untyped-call]
        return copied

    def _run(self, *inputs: Tensor) -> Tensor | tuple[Tensor, ...]:
        (net,) = self._net
        if self.training:
            _count_pass(net)
        outputs: Tensor | tuple[Tensor, ...] = net(*inputs)
        return outputs


def _unpickled(
    kind: type[Module],
    plan: NetPlan,
    values: Values,
    seed: int,
    iteration: int,
    number: int,
    precision: Precision = FLOAT32,
    half: Collection[str] = (),
) -> Module:
    net = made_again(plan, values, PassContext(seed, precision, iteration, number))
    net.precision.compute_in_half(half)
    return kind(net, plan)


@not_compiled  # it would compile anew for each count
def _count_pass(net: Net) -> None:
    """Count a training pass, so that each has its own random numbers."""
    net.enter(replace(net.context, pass_number=net.context.pass_number + 1))


def module_of(
    plan: NetPlan,
    weights: Sequence[str] = (),
    precision: str = "FLOAT32",
    missing: MissingWeights = MissingWeights.WARN,
    remedy: str = ", or leave strict=True out",
) -> Module:
    """Return the net of ``plan`` as a module.

    Args:
        plan: the net's text.
        weights: the files of weights; a layer is taken from the last file that has it.
        precision: the precision to compute in, as in a solver's ``precision``.
        missing, remedy: see WeightCoverage.check.

    Raises:
        PrototxtError: the text is wrong; the error says where.
        FileError: the weights cannot be read, do not fit the net, or lack a layer, and ``missing`` refuses that.
        RunError: there is not enough memory.
    """
    text = pb.NetParameter()
    text.CopyFrom(plan.source.param)
    text.force_backward = True  # the text does not say which gradients the caller needs
    plan = replace(plan, source=replace(plan.source, param=text))
    net = net_in(precision, build_graph_of(plan), CPU)
    for param in net.graph.params:
        if not param.lr_mult:
            net.value(param).requires_grad_(False)
    if weights:
        load_files(net, weights, missing=missing, remedy=remedy)
    return Module(net, plan, list(weights))
