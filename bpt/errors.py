"""Every error that bpt raises on purpose.

::

    BptError
    ├── UserError            exit 2: a command line or a file that the user wrote is wrong
    │   ├── UsageError           a flag or an argument
    │   ├── PrototxtError        a network or solver text; knows path, line and column
    │   │   └── LayerError           ... one layer of it; names the layer
    │   └── FileError            a file that is missing or not what it should be
    └── RunError             exit 1: the run itself failed
        ├── DataError            a record that cannot be read or used
        ├── WriteError           a file that could not be written (the old one is intact)
        └── LostRankError        another rank has died; knows which

The command line prints ``error: <message>`` and leaves with ``exit_status``; a traceback is a bug in
bpt.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping

from bpt.origin import Origin

_LONGEST = 200  # characters that a message shows of what somebody wrote
_MOST = 10_000  # characters of a message: names in a damaged file may have any length


class BptError(Exception):
    """Base of all errors that bpt raises on purpose. They can be pickled, to be told to other ranks."""

    exit_status = 1

    def __init__(self, *args: object) -> None:
        super().__init__(*(_bounded(arg) if isinstance(arg, str) else arg for arg in args))

    def __reduce__(self) -> tuple[Callable[..., BptError], tuple[object, ...]]:
        return _made_again, (type(self), self.args, self.__dict__)


class UserError(BptError, ValueError):
    """What the user wrote is wrong; the message says where and what to do."""

    exit_status = 2


class UsageError(UserError):
    """A flag or an argument of the command line is wrong."""


class PrototxtError(UserError):
    """A prototxt is wrong at ``origin`` (``None``: the text was made in memory)."""

    def __init__(self, message: str, origin: Origin | None = None) -> None:
        self.origin = origin
        super().__init__(f"{origin}: {message}" if origin else message)


class LayerError(PrototxtError):
    """A layer of a network is wrong."""

    def __init__(self, layer: str, message: str, origin: Origin | None = None) -> None:
        self.layer = layer
        super().__init__(f'layer "{layer}": {message}', origin)


class FileError(UserError):
    """A file that the user named is missing, unreadable or of the wrong kind."""

    def __init__(self, path: object, message: str) -> None:
        self.path = str(path)
        super().__init__(f"{path}: {message}")


class RunError(BptError, RuntimeError):
    """The run failed although what the user wrote is well-formed."""


class DataError(RunError):
    """A record of a data source cannot be read or used."""


class WriteError(RunError):
    """A file could not be written; what stood there before is intact."""

    def __init__(self, path: object, reason: object) -> None:
        self.path = str(path)
        super().__init__(f"{path}: could not be written: {reason}")


class LostRankError(RunError):
    """Another rank has died, or cannot be reached any more.

    Attributes:
        ranks: those of the communicator that are known to be lost, in order; empty: the library cannot tell.
    """

    def __init__(self, message: str, ranks: Iterable[int] = ()) -> None:
        self.ranks = tuple(sorted(ranks))
        super().__init__(message)


def _made_again(kind: type[BptError], args: tuple[object, ...], attributes: Mapping[str, object]) -> BptError:
    """The pickled error; ``args`` are its message, not what its class is called with."""
    error = kind.__new__(kind, *args)
    error.__dict__.update(attributes)
    return error


def excerpt(text: str) -> str:
    """``text`` as a message shows it: of a long one the beginning."""
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} … ({len(text)} characters)"


def _bounded(message: str) -> str:
    return message if len(message) <= _MOST else f"{message[: _MOST // 2]} … {message[-_MOST // 4 :]}"


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return ``; did you mean "x"?`` for the known name nearest to ``name``, or ``""``."""
    lowered = {candidate.lower(): candidate for candidate in known}
    near = difflib.get_close_matches(name.lower(), lowered, n=1, cutoff=0.6)
    return f'; did you mean "{lowered[near[0]]}"?' if near else ""
