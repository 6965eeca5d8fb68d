"""A pass program: all steps of a pass in TorchScript, without Python between its kernels; forward only.

Torch gives a program's layers to oneDNN's graph compiler. It arranges constant weights once, and starts a kernel at a
fraction of the cost of an operator. So a pass of a small net takes half the time.

A program is only right for finite numbers (``magnitudes``). It returns the largest norm of its samples, and of blobs
for which nothing else is known. If that is above ``LARGEST``, or NaN, the caller runs the steps instead.

A program has only layers of ``magnitudes``, whose tops depend on nothing but bottoms and parameters. The functions of
torch that make a program are not public, so each program is compared with its steps before use.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.nn import functional

from bpt.nn.fusion.fusion_steps import FusionStep
from bpt.nn.fusion.magnitudes import OF_LAYERS, bound_of
from bpt.nn.fusion.operations import Overwriting, PreparedOperation
from bpt.nn.kernels.recording import plain_shape
from bpt.nn.layers import Layer
from bpt.nn.layers.activation import ReLU
from bpt.nn.layers.concat import Split
from bpt.nn.layers.dropout import Dropout
from bpt.nn.layers.normalize import LRN
from bpt.nn.layers.pooling import Pooling

TRIALS = 3  # runs in which torch observes the strides of blobs, and compiles, and shows the result
CLOSE = 1e-4  # largest difference from the steps, relative to the largest element
LARGEST = 1e8  # largest norm, and so largest absolute value, of blobs that a program looks at
FINITE = 1e34  # bound below which no sum of rounded numbers overflows

Function = Callable[..., tuple[Tensor, ...]]
"""Returns the tops and, as the last tensor, the largest norm of the blobs that it looks at."""
Tops = Tensor | tuple[Tensor, ...]


def can_record(steps: Sequence[FusionStep], layers: Sequence[Layer]) -> bool:
    """Return whether a program can have all of these steps."""
    return all(
        isinstance(step.operation, PreparedOperation) or all(_is_plain(layers[node.index]) for node in step.nodes)
        for step in steps
        if step.nodes[0].type != "Input"
    )


def _is_plain(layer: Layer) -> bool:
    tests_dropout = type(layer) is Dropout and not layer.training
    return type(layer) in OF_LAYERS and layer.repeatable and (layer.sample_independent or tests_dropout)


def record(
    steps: Sequence[FusionStep],
    layers: Sequence[Layer],
    samples: Mapping[int, Tensor],
    expected: Mapping[int, Tensor],
) -> Function | None:
    """Return a function of the ``samples`` that does what the steps did; ``None`` if torch cannot make it.

    Args:
        steps: steps that can be recorded.
        layers: the layers of the whole graph.
        samples: the tensors that the steps read, by edge; CPU, float32.
        expected: the tensors that the steps made of them, by edge.
    """
    steps = [step for step in steps if step.nodes[0].type != "Input"]
    operations = [step.operation for step in steps if isinstance(step.operation, PreparedOperation)]
    prepared = all(operation.is_prepared for operation in operations)  # not if the layers could not run as one
    looks_at = _unbounded(steps, layers, samples) if prepared else None
    if looks_at is None:
        return None
    calls = [(step, _call_of(step, layers)) for step in steps]

    def run(*tensors: Tensor) -> tuple[Tensor, ...]:
        values = dict(zip(samples, tensors, strict=True))
        for step, call in calls:
            tops = call(*(values[edge] for edge in step.bottoms))
            values.update(zip(step.nodes[-1].tops, (tops,) if isinstance(tops, Tensor) else tops, strict=True))
        largest = [torch.linalg.vector_norm(values[edge]) for edge in looks_at]
        return (*(values[edge] for edge in expected), torch.stack(largest).max() if largest[1:] else largest[0])

    tensors = tuple(samples.values())
    names = [f"blob{edge}" for edge in samples]
    try:
        with torch.no_grad(), _compiling():
            graph, *_ = torch._C._create_graph_by_tracing(run, tensors, lambda _: "", True, False, None, names)
            function: Function = torch._C._create_function_from_graph("program", graph)
            for _ in range(TRIALS):
                *tops, largest = function(*tensors)
    except (AttributeError, RuntimeError, TypeError):
        return None
    same = map(_are_close, tops, expected.values())
    return function if float(largest) <= LARGEST and all(same) else None


def _unbounded(steps: Sequence[FusionStep], layers: Sequence[Layer], samples: Mapping[int, Tensor]) -> list[int] | None:
    """Return the edges that must be at most ``LARGEST`` for all blobs to be finite; ``None`` if that is not enough."""
    looks_at, bounds = list(samples), dict.fromkeys(samples, LARGEST)
    for step in steps:
        bound = bound_of(step, layers, [bounds[edge] for edge in step.bottoms])
        if not bound <= FINITE:
            wide = [edge for edge in step.bottoms if bounds[edge] > LARGEST]
            looks_at += wide
            bounds.update(dict.fromkeys(wide, LARGEST))
            bound = bound_of(step, layers, [bounds[edge] for edge in step.bottoms])
            if not bound <= FINITE:
                return None
        bounds.update(dict.fromkeys(step.nodes[-1].tops, bound))
    return looks_at


def _call_of(step: FusionStep, layers: Sequence[Layer]) -> Callable[..., Tops]:
    """Return a function that makes a step's tops of its bottoms."""
    operation = step.operation
    if isinstance(operation, PreparedOperation):
        return operation.by_plain_operators()
    *first, last = [_layer_call(layers[node.index], isinstance(operation, Overwriting)) for node in step.nodes]

    def in_turn(*bottoms: Tensor) -> Tops:
        for each in first:
            top = each(*bottoms)
            assert isinstance(top, Tensor)
            bottoms = (top,)
        return last(*bottoms)

    return in_turn


def _layer_call(layer: Layer, over: bool) -> Callable[..., Tops]:
    if type(layer) is ReLU and over:
        return lambda bottom: layer.overwrite(0, bottom)
    if isinstance(layer, Split):
        return lambda bottom: (bottom,) * layer.copies  # as without gradients
    if isinstance(layer, LRN) and layer.across:
        return lambda bottom: torch.ops.bpt.lrn_across(bottom, layer.size, layer.alpha, layer.beta, layer.k)
    return _pool_by(layer) if isinstance(layer, Pooling) else layer.forward


def _pool_by(layer: Pooling) -> Callable[..., Tops]:
    def pool(x: Tensor) -> Tops:
        sizes = plain_shape(x)[2:]
        window = layer.window.expand(sizes)
        by_torch = all(2 * pad <= kernel for pad, kernel in zip(window.pad, window.kernel, strict=True))
        if len(sizes) == 2 and by_torch and layer.is_plain_max(sizes):
            return functional.max_pool2d(x, window.kernel, window.stride, window.pad, 1, window.ceil)
        if len(sizes) == 2 and not any(window.pad) and layer.is_plain_average(sizes):
            # Without pads it is the same whether these count; the compiler only takes averages where they do not.
            return functional.avg_pool2d(x, window.kernel, window.stride, 0, window.ceil, count_include_pad=False)
        return layer.forward(x)

    return pool


@contextmanager
def _compiling() -> Iterator[None]:
    """Open a scope in which torch gives programs to oneDNN's graph compiler, and does not warn about constants."""
    before = torch.jit.onednn_fusion_enabled()  # type: ignore[no-untyped-call]
    torch.jit.enable_onednn_fusion(True)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        torch.jit.enable_onednn_fusion(before)


def _are_close(top: Tensor, wanted: Tensor) -> bool:
    largest = float(wanted.abs().max()) if wanted.numel() else 0.0
    return top.shape == wanted.shape and torch.allclose(top, wanted, rtol=0, atol=CLOSE * largest)
