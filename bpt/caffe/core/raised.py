"""as_raised: pass the exceptions of Python layers to the caller unchanged, with their own traceback."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from bpt.nn.layers.python_errors import CodeError, SetupError


@contextmanager
def as_raised() -> Iterator[None]:
    """Replace a SetupError or CodeError that is raised in the block by the exception that caused it."""
    try:
        yield
    except (SetupError, CodeError) as error:
        raise error.__cause__ or error from None
