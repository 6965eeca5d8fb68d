"""Errors of a user's own code in a Python layer, reported with its file and line."""

from __future__ import annotations

import importlib
import os
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from bpt.base.errors import BptError, LayerError, RunError
from bpt.base.version import PACKAGE
from bpt.graph.layer_spec import LayerSpec
from bpt.system.device.torch_errors import is_out_of_memory

# What calls the user's code is not theirs.
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
    # What the user's code calls is not theirs, unless it is all there is.
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
            raise  # the net knows what to say
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
