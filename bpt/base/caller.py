"""The reader of messages: a user of the command line, who knows flags, or a Python program, which has parameters."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

_commands: list[None] = []  # an entry for each running command; commands can be nested


@contextmanager
def on_command_line() -> Iterator[None]:
    """Let messages name the flags of the command line."""
    _commands.append(None)
    try:
        yield
    finally:
        _commands.pop()


def for_caller(on_command_line: str, in_python: str) -> str:
    """Return the words for the caller: ``on_command_line`` while a command runs, else ``in_python``."""
    return on_command_line if _commands else in_python


def set_in_solver(text: str) -> str:
    """Return how to override fields of the solver by ``text``."""
    return for_caller(f"add --set '{text}'", f"give overrides='{text}'")
