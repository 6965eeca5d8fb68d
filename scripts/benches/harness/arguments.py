"""What benches take on their command lines, for argparse."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Collection, Iterable
from pathlib import Path


def at_least(least: int) -> Callable[[str], int]:
    """A whole number that is large enough, for argparse."""

    def number(text: str) -> int:
        if not text.isdecimal() or int(text) < least:
            raise argparse.ArgumentTypeError(f'takes a whole number of at least {least}, found "{text}"')
        return int(text)

    return number


def some_of(known: Iterable[str], what: str) -> Callable[[str], list[str]]:
    """Names of these, separated by commas; at least one.

    Args:
        what: they name.
    """
    names = list(known)

    def chosen(text: str) -> list[str]:
        words = [word for word in text.split(",") if word]
        for word in words:
            if word not in names:
                raise argparse.ArgumentTypeError(f'no {what} "{word}" here; there are {", ".join(names)}')
        if not words:
            raise argparse.ArgumentTypeError(f"name a {what}")
        return words

    return chosen


def add_nets(parser: argparse.ArgumentParser, known: Collection[str], default: Iterable[str]) -> None:
    """The flag --nets."""
    help = f"which of {', '.join(known)}, by commas (default %(default)s)"
    parser.add_argument("--nets", type=some_of(known, "network"), default=",".join(default), help=help)


def add_output(parser: argparse.ArgumentParser, folder: Path, what: str) -> None:
    """The flag --output, also called --out: the folder that results go to, which are ``what``."""
    help = f"folder for {what} (default %(default)s)"
    parser.add_argument("--output", "--out", dest="out", type=Path, default=folder, metavar="DIR", help=help)


def explain(parser: argparse.ArgumentParser, text: str | None) -> None:
    """Let --help begin with ``text`` as it stands."""
    parser.description = text
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
