"""Errors of a user's own code in a Python layer, with its file and line, and checks of a user's module."""

from __future__ import annotations

import importlib
import inspect
import os
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.autograd.graph import Node, get_gradient_edge

from bpt.base.errors import BptError, LayerError, RunError
from bpt.base.version import PACKAGE
from bpt.graph.layer_spec import LayerSpec
from bpt.nn.layers.layer_text import notice
from bpt.system.device.torch_errors import is_out_of_memory

# The callers of the user's code, which are not reported as its place.
_CALLERS = tuple(
    str(folder) + os.sep for folder in (PACKAGE, Path(torch.__file__).parent, Path(importlib.__file__).parent)
)


def explain(error: BaseException) -> str:
    """Return where in the user's code the error occurred, and which one, in one line.

    For example ``"/nets/my_layers.py:12: ValueError: …"``.
    """
    what = type(error).__name__
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}:{error.lineno}: {what}: {error.msg}"
    lines = str(error).splitlines()
    what = f"{what}: {lines[0]}" if lines else what
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith((*_CALLERS, "<frozen"))
    ]
    # Libraries that the user's code calls are not reported as its place, unless there is no other.
    own = [frame for frame in frames if "site-packages" not in frame.filename] or frames
    return f"{own[-1].filename}:{own[-1].lineno}: {what}" if own else what


class SetupError(LayerError):
    """An error that the user's code raised before the run; its cause is the user's exception."""


class CodeError(RunError):
    """An error that the user's code raised during the run; its cause is the user's exception."""


@contextmanager
def running(spec: LayerSpec, doing: str) -> Iterator[None]:
    """Turn each exception that the user's code raises inside into a CodeError.

    Args:
        doing: the method that is called, such as "forward".
    """
    try:
        yield
    except BptError:
        raise
    except (Exception, SystemExit) as error:
        if is_out_of_memory(error):
            raise  # the net reports this error
        raise CodeError(f'layer "{spec.name}": {doing} of {spec.param.python_param.layer}: {explain(error)}') from error


@contextmanager
def setting_up(spec: LayerSpec, doing: str) -> Iterator[None]:
    """Turn each exception that the user's code raises inside, before the run, into a SetupError.

    Args:
        doing: the step that calls the user's code.
    """
    try:
        yield
    except BptError:
        raise
    except (Exception, SystemExit) as error:
        message = f"{doing} of {spec.param.python_param.layer}: {explain(error)}"
        raise SetupError(spec.name, message, spec.origin("python_param")) from error


def check_forward(spec: LayerSpec, module: nn.Module) -> None:
    """Raise a LayerError unless ``module`` has a ``forward`` that takes as many tensors as the layer has bottoms."""
    kind = spec.param.python_param.layer
    if type(module).forward is nn.Module.forward and "forward" not in vars(module):
        raise spec.error(f"{kind} has no forward, which makes the tops of the bottoms", "python_param", "layer")
    try:
        signature = inspect.signature(module.forward)
    except (TypeError, ValueError):  # a compiled function has no signature
        return
    try:
        signature.bind(*spec.bottoms)
    except TypeError as error:
        names = ", ".join(spec.bottom_names)
        given = f"{len(spec.bottoms)} bottom{'s' * (len(spec.bottoms) != 1)}{f' ({names})' if names else ''}"
        raise spec.error(f"forward{signature} of {kind} does not take {given}: {error}", "bottom") from None


def notice_cut(spec: LayerSpec, bottoms: Sequence[Tensor], tops: Sequence[Tensor]) -> None:
    """Log which of the bottoms that want a gradient get none, since no top depends on them for autograd."""
    if not tops:
        return
    reached = _reached(bottoms, tops)
    names = [
        f'"{name}"'
        for name, bottom, known in zip(spec.bottom_names, bottoms, reached, strict=True)
        if bottom.requires_grad and not known
    ]
    if names:
        which = "its top does" if len(tops) == 1 else "its tops do"
        notice(
            spec,
            f"{which} not depend on bottom {' and '.join(names)} for autograd, which cannot follow detach(), "
            "NumPy or whole numbers: nothing below learns from it (propagate_down: false declares this)",
            "python_param",
        )


def _reached(bottoms: Sequence[Tensor], tops: Sequence[Tensor]) -> list[bool]:
    """Return for each bottom whether going backward from the tops leads to it; False without ``requires_grad``."""
    wanted = [_edge(bottom) if bottom.requires_grad else None for bottom in bottoms]
    waiting = [_edge(top) for top in tops if top.requires_grad]
    seen = set(waiting)
    while waiting:
        edge = waiting.pop()
        if edge in wanted:
            continue  # the graph before the bottoms does not belong to this layer
        further = {(node, number) for node, number in edge[0].next_functions if node is not None} - seen
        seen |= further
        waiting.extend(further)
    return [edge in seen for edge in wanted]


def _edge(tensor: Tensor) -> tuple[Node, int]:
    """Return the node of autograd's graph that made the tensor, and which of its results it is."""
    edge = get_gradient_edge(tensor)
    return edge.node, edge.output_nr
