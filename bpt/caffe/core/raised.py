"""Exceptions of Python layers: they reach a Python caller as they were raised, with their own traceback."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from bpt.nn.layers.python_errors import CodeError, SetupError


@contextmanager
def as_raised() -> Iterator[None]:
    """Raise what stands behind a SetupError or CodeError that is raised inside."""
    try:
        yield
    except (SetupError, CodeError) as error:
        raise error.__cause__ or error from None
