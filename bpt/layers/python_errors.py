"""What a user's own code raises in a Python layer, as errors that tell its file and line."""

from __future__ import annotations

import importlib
import os
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from bpt.errors import BptError, LayerError, RunError
from bpt.failures import is_out_of_memory
from bpt.graph.spec import LayerSpec
from bpt.version import PACKAGE

# What calls the user's code is not theirs.
_CALLERS = tuple(
    str(folder) + os.sep for folder in (PACKAGE, Path(torch.__file__).parent, Path(importlib.__file__).parent)
)


def explain(error: BaseException) -> str:
    """``"/nets/my_layers.py:12: ValueError: …"``: where in the user's code it happened, and what, in one line."""
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
    # What the user's code calls is not theirs, unless it is all there is.
    own = [frame for frame in frames if "site-packages" not in frame.filename] or frames
    return f"{own[-1].filename}:{own[-1].lineno}: {what}" if own else what


class SetupError(LayerError):
    """What the user's code has raised before the run, which is the cause."""


class CodeError(RunError):
    """What the user's code has raised in the run, which is the cause."""


@contextmanager
def running(spec: LayerSpec, doing: str) -> Iterator[None]:
    """What the user's code raises inside becomes a CodeError; ``doing`` ("forward") tells where it was called."""
    try:
        yield
    except BptError:
        raise
    except (Exception, SystemExit) as error:
        if is_out_of_memory(error):
            raise  # the net knows what to say
        raise CodeError(f'layer "{spec.name}": {doing} of {spec.param.python_param.layer}: {explain(error)}') from error


@contextmanager
def setting_up(spec: LayerSpec, doing: str) -> Iterator[None]:
    """The same before the run, as a SetupError."""
    try:
        yield
    except BptError:
        raise
    except (Exception, SystemExit) as error:
        message = f"{doing} of {spec.param.python_param.layer}: {explain(error)}"
        raise SetupError(spec.name, message, spec.origin("python_param")) from error
