"""glog's flags, as Caffe's programs take them. They say which lines of the log are written, and where.

A flag of the command line, such as ``--minloglevel 1``, sets the environment variable ``GLOG_minloglevel``, so that
programs which bpt starts have it, too.
"""

from __future__ import annotations

import getpass
import logging
import os
import socket
import sys
import time
from collections.abc import Mapping, MutableMapping, Sequence
from pathlib import Path
from typing import NamedTuple, TextIO

from bpt.base.errors import UsageError

LEVELS = (logging.INFO, logging.WARNING, logging.ERROR, logging.CRITICAL)
"""Python's levels, by glog's numbers."""
SWITCHES = ("logtostderr", "alsologtostderr")
NUMBERS = ("minloglevel", "stderrthreshold", "v")
FOLDER = "log_dir"
_PREFIX = "GLOG_"
_TRUE, _FALSE = ("true", "t", "1", "yes", "y"), ("false", "f", "0", "no", "n")


def take_flags(
    words: Sequence[str], known: Sequence[str] = (), environ: MutableMapping[str, str] = os.environ
) -> list[str]:
    """Put glog's flags among ``words`` into the environment, and return the other words.

    Args:
        words: the words of a command line. Words after ``--`` belong to another program.
        known: flags that have another meaning in this program.
        environ: the environment to change.

    Raises:
        UsageError: a flag has no value, or a wrong one.
    """
    left: list[str] = []
    found: dict[str, str] = {}
    rest = iter(words)
    for word in rest:
        if word == "--":
            return [*left, word, *rest, *_put(found, environ)]
        flag, equals, value = word.partition("=")
        name = flag.lstrip("-")
        if not 1 <= len(flag) - len(name) <= 2 or flag in known:
            left.append(word)
        elif name in SWITCHES:
            found[name] = value if equals else "true"
        elif name.startswith("no") and name[2:] in SWITCHES and not equals:
            found[name[2:]] = "false"
        elif name in NUMBERS or name == FOLDER:
            given = value if equals else next(rest, None)
            if given is None:
                raise UsageError(f"{flag} needs a value")
            found[name] = given
        else:
            left.append(word)
    return [*left, *_put(found, environ)]


def _put(found: Mapping[str, str], environ: MutableMapping[str, str]) -> Sequence[str]:
    """Check the flags of a command line and set them in ``environ``; return no words."""
    given = {_PREFIX + name: value for name, value in found.items()}
    GlogSettings.read({**environ, **given}, place="--")
    environ.update(given)
    return ()


class GlogSettings(NamedTuple):
    """The settings of the log by glog's flags.

    Attributes:
        least: the lowest of Python's levels that is written.
        least_on_stderr: the lowest level that is written to stderr.
        folder: the folder for a log file; "": there is none.
    """

    least: int = logging.INFO
    least_on_stderr: int = logging.INFO
    folder: str = ""

    @classmethod
    def read(
        cls, environ: Mapping[str, str] = os.environ, place: str = _PREFIX, is_elsewhere: bool = False
    ) -> GlogSettings:
        """Return the settings of the environment.

        Args:
            environ: the environment.
            place: the prefix of the settings' names in errors: the environment's, or that of flags.
            is_elsewhere: whether the log has another place than stderr, which then gets only warnings and errors,
                unless a setting says otherwise.

        Raises:
            UsageError: a value is wrong.
        """

        def is_on(name: str, default: bool) -> bool:
            return _is_on(environ, name, default, place)

        def number(name: str, default: int) -> int:
            text = environ.get(_PREFIX + name, "") or str(default)
            try:
                return int(text)
            except ValueError:
                raise UsageError(f'{place}{name} takes a whole number, found "{text}"') from None

        number("v", 0)  # checked only: bpt, like BVLC's Caffe, has no VLOG lines
        least = _level(number("minloglevel", 0))
        threshold = _level(number("stderrthreshold", 1 if is_elsewhere else 2))
        alone, also = is_on("logtostderr", False), is_on("alsologtostderr", not is_elsewhere)
        return cls(least, least if alone or also else threshold, "" if alone else environ.get(_PREFIX + FOLDER, ""))

    def open_file(self) -> tuple[Path, TextIO] | None:
        """Return a new file in ``folder``, named as glog names it, and its path; ``None`` without a folder.

        Raises:
            UsageError: the file cannot be made.
        """
        if not self.folder:
            return None
        program = Path(sys.argv[0]).name or "bpt"
        now = time.strftime("%Y%m%d-%H%M%S")
        path = Path(self.folder, f"{program}.{socket.gethostname()}.{_user()}.log.INFO.{now}.{os.getpid()}")
        try:
            file = path.open("a", encoding="utf-8")
            link = Path(self.folder, f"{program}.INFO")
            link.unlink(missing_ok=True)
            link.symlink_to(path.name)
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise UsageError(f'log_dir: cannot write the log to "{path}": {reason}') from None
        return path, file


def wants_stderr(environ: Mapping[str, str] = os.environ) -> bool:
    """Return whether a setting of the environment asks for the whole log on stderr.

    Raises:
        UsageError: the value of the setting is wrong.
    """
    return any(_is_on(environ, name, False, _PREFIX) for name in SWITCHES)


def _is_on(environ: Mapping[str, str], name: str, default: bool, place: str) -> bool:
    text = environ.get(_PREFIX + name, "").lower()
    if text and text not in (*_TRUE, *_FALSE):
        raise UsageError(f'{place}{name} takes true or false, found "{text}"')
    return text in _TRUE if text else default


def _level(number: int) -> int:
    return LEVELS[min(max(number, 0), len(LEVELS) - 1)]


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user without a name
        return "invalid-user"
