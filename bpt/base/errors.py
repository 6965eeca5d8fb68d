"""Every error that bpt raises on purpose.

::

    BptError
    ├── UserError            exit 2: a command line or a file that the user wrote is wrong
    │   ├── UsageError           a flag or an argument
    │   ├── PrototxtError        a network or solver text; knows path, line and column
    │   │   └── LayerError           ... one layer of it; names the layer
    │   ├── UnknownNameError     a name in a table that does not have it; a KeyError, too
    │   └── FileError            a file that is missing or not what it should be
    └── RunError             exit 1: the run itself failed
        ├── DataError            a record that cannot be read or used
        ├── WriteError           a file that could not be written (the old one is intact)
        ├── DivergedError        a loss or weights that are NaN or infinite
        └── LostRankError        another rank has died; knows which

The command line prints ``error: <message>`` and exits with ``exit_status``. A traceback is a bug in bpt.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Iterable, Mapping

from bpt.base.origin import Origin

_LONGEST = 200  # characters of a user's text that a message shows
_COMMON_ENDING = 9  # longest ending that many files share (".txt", ".prototxt"); ".caffemodel" is specific
_MOST = 10_000  # characters of a message: names in a damaged file may have any length


def first_line_of(error: BaseException) -> str:
    """Return the first line of what an error of a library says, or else its kind."""
    return (str(error).splitlines() or [type(error).__name__])[0]


class BptError(Exception):
    """Base of all errors that bpt raises on purpose. They can be pickled and sent to other ranks."""

    exit_status = 1

    def __init__(self, *args: object) -> None:
        super().__init__(*(_bounded(arg) if isinstance(arg, str) else arg for arg in args))

    def __reduce__(self) -> tuple[Callable[..., BptError], tuple[object, ...]]:
        return _unpickle, (type(self), self.args, self.__dict__)


class UserError(BptError, ValueError):
    """A mistake in the user's text or arguments; the message says where it is and what to do."""

    exit_status = 2


class UsageError(UserError):
    """A flag or an argument of the command line is wrong."""


class PrototxtError(UserError):
    """A prototxt is wrong at ``origin`` (``None``: the text was made in memory)."""

    def __init__(self, message: str, origin: Origin | None = None) -> None:
        self.origin = origin
        super().__init__(origin.blame(message) if origin else message)


class LayerError(PrototxtError):
    """A layer of a network is wrong.

    Attributes:
        why: the message without the layer and its place.
    """

    def __init__(self, layer: str, why: str, origin: Origin | None = None) -> None:
        self.layer = layer
        self.why = why
        super().__init__(f'layer "{layer}": {why}', origin)


class UnknownNameError(UserError, KeyError):
    """A name that a table (``net.blobs``, the layer types) does not have.

    Attributes:
        is_slip: whether the message suggests a known name.
    """

    def __init__(self, message: str, name: str, known: Iterable[str], otherwise: str = "") -> None:
        """Make the message; ``otherwise`` ends it if no known name is nearly the same as ``name``."""
        hint = did_you_mean(name, known, closely=True)
        self.is_slip = bool(hint)
        super().__init__(message + (hint or otherwise))

    def __str__(self) -> str:  # that of a KeyError is in quotes
        return Exception.__str__(self)


class FileError(UserError):
    """A file that the user named is missing, unreadable or of the wrong kind."""

    def __init__(self, path: object, message: str) -> None:
        self.path = str(path)
        self.reason = message
        super().__init__(f"{path}: {message}")

    def about(self, path: str) -> FileError:
        """Return the same error with the final path of a temporary file."""
        return FileError(path, self.reason)


class RunError(BptError, RuntimeError):
    """The run failed although what the user wrote is well-formed."""


class DataError(RunError):
    """A record of a data source cannot be read or used."""


class WriteError(RunError):
    """A file could not be written; an old file of that name is intact."""

    def __init__(self, path: object, reason: object) -> None:
        self.path = str(path)
        self.reason = str(reason)
        super().__init__(f"{path}: could not be written: {reason}")

    def about(self, path: str) -> WriteError:
        """Return the same error with the final path of a temporary file."""
        return WriteError(path, self.reason)


class DivergedError(RunError):
    """The loss of an iteration, or weights, are NaN or infinite, so training cannot continue."""


class LostRankError(RunError):
    """Another rank has died or is unreachable.

    Attributes:
        ranks: the lost ranks of the communicator, in order; empty: the library does not know them.
    """

    def __init__(self, message: str, ranks: Iterable[int] = ()) -> None:
        self.ranks = tuple(sorted(ranks))
        super().__init__(message)


def _unpickle(kind: type[BptError], args: tuple[object, ...], attributes: Mapping[str, object]) -> BptError:
    """Return the unpickled error; ``args`` is its message, not the arguments of its class."""
    error = kind.__new__(kind, *args)
    error.__dict__.update(attributes)
    return error


def excerpt(text: str) -> str:
    """Return ``text`` for a message; only the beginning of a long text."""
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} … ({len(text)} characters)"


def _bounded(message: str) -> str:
    return message if len(message) <= _MOST else f"{message[: _MOST // 2]} … {message[-_MOST // 4 :]}"


def did_you_mean(name: str, known: Iterable[str], closely: bool = False, folder: str = "") -> str:
    """Return ``; did you mean "x"?`` for the known name nearest to ``name``, or ``""``.

    Args:
        name: the unknown name.
        known: the known names.
        closely: suggests only for a typing slip. Types share words (ROIPooling, Pooling) without being misspellings.
        folder: the folder of files as the user wrote it, so that the suggestion can be pasted.
    """
    lowered = {candidate.lower(): candidate for candidate in known}
    for near in difflib.get_close_matches(name.lower(), lowered, n=3, cutoff=0.6):
        if (_is_slip if closely else _is_near)(name.lower(), near):
            return f'; did you mean "{os.path.join(folder, lowered[near])}"?'
    return ""


def _is_slip(name: str, near: str) -> bool:
    """Return whether at most two letters differ, or a sixth of all; the first of a short name must not (Flip, Clip)."""
    matcher = difflib.SequenceMatcher(None, near, name)
    strange = len(name) + len(near) - 2 * sum(block.size for block in matcher.get_matching_blocks())
    return (strange <= 2 and name[:1] == near[:1]) or strange <= 1 or matcher.ratio() >= 5 / 6


def _is_near(name: str, near: str) -> bool:
    """Return whether the names are near even without an ending that many files share (``.txt``)."""
    (stem, ending), (other, same) = os.path.splitext(name), os.path.splitext(near)
    if ending != same or not 1 < len(ending) <= _COMMON_ENDING:
        return True
    return difflib.SequenceMatcher(None, other, stem).ratio() >= 0.6
