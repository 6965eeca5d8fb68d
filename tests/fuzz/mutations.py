"""Changes cases: bytes and texts a little, so that they get far into the code that reads them."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence

ODD_NUMBERS = (
    "0", "1", "-1", "2", "3", "7", "127", "128", "255", "256", "65535", "65536", "16777217", "2147483647", "2147483648",
    "-2147483648", "-2147483649", "4294967295", "4294967296", "9999999999", "9223372036854775807",
    "18446744073709551615",
    "99999999999999999999999", "0.5", "-0.0", "1e-45", "1e38", "1e39", "1e308", "1e999", "-1e999", "nan", "inf", "-inf",
    "0x7fffffff", "017", "08", "1.2.3", "1e", "--1", "+1", "1f", ".", "1" * 5000, "0." + "3" * 400,
)  # fmt: skip
"""Numbers at the ends of what types hold, and texts that are nearly numbers."""

ODD_TEXTS = (
    "", " ", "\n", "\r\n", "\t", "\0", "\x7f", "\u0661", "\u00b2", "\u2028", "\ufeff", "\ud7ff", "é", "😀", '"', "'",
    "\\",
    "#", "%s", "{}", "/", "..", ".", "/dev/null", "~", "a" * 300, "x/" * 60, "\x1b[31m",
)  # fmt: skip
_WORD = re.compile(rb"[A-Za-z_][A-Za-z0-9_]*|-?[0-9][0-9.eE+-]*|\S")
_NUMBER = re.compile(rb"-?[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?")

Change = Callable[[random.Random, bytes, bytes], bytes]


def flip(rng: random.Random, case: bytes, other: bytes) -> bytes:
    """Flips some bits."""
    content = bytearray(case)
    for _ in range(rng.choice((1, 1, 1, 2, 4, 16))):
        if content:
            content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    return bytes(content)


def overwrite(rng: random.Random, case: bytes, other: bytes) -> bytes:
    """Writes 1 to 8 bytes over others: the ends of what such numbers hold, or anything."""
    size = rng.choice((1, 1, 2, 4, 8))
    value = rng.choice((b"\0" * size, b"\xff" * size, b"\x7f" + b"\xff" * (size - 1), rng.randbytes(size)))
    at = rng.randrange(len(case) + 1)
    return case[:at] + value + case[at + size :]


def cut(rng: random.Random, case: bytes, other: bytes) -> bytes:
    """Leaves a part out: the end, the start, or one between."""
    start, end = sorted(rng.randrange(len(case) + 1) for _ in range(2))
    return rng.choice((case[:start], case[end:], case[:start] + case[end:], case[:-1], case[1:]))


def repeat(rng: random.Random, case: bytes, other: bytes) -> bytes:
    """Says a part several times, now and then very often."""
    start = rng.randrange(len(case) + 1)
    part = case[start : start + rng.choice((1, 2, 8, 64, 1024))]
    times = rng.choice((1, 1, 2, 3, 16, 256))
    return case[:start] + part * times + case[start:]


def splice(rng: random.Random, case: bytes, other: bytes) -> bytes:
    """Puts a part of another case in."""
    at = rng.randrange(len(case) + 1)
    start, end = sorted(rng.randrange(len(other) + 1) for _ in range(2))
    return case[:at] + other[start:end] + case[at + rng.choice((0, end - start)) :]


def swap(rng: random.Random, case: bytes, other: bytes) -> bytes:
    """Exchanges two lines."""
    lines = case.split(b"\n")
    first, second = (rng.randrange(len(lines)) for _ in range(2))
    lines[first], lines[second] = lines[second], lines[first]
    return b"\n".join(lines)


BYTE_CHANGES: Sequence[Change] = (flip, flip, overwrite, overwrite, cut, repeat, splice)


def mutate_bytes(rng: random.Random, seeds: Sequence[bytes], changes: Sequence[Change] = BYTE_CHANGES) -> bytes:
    """One of the seeds, changed a few times."""
    case = rng.choice(seeds)
    for _ in range(rng.choice((1, 1, 1, 2, 3, 6))):
        case = rng.choice(changes)(rng, case, rng.choice(seeds))
    return case


def mutate_text(rng: random.Random, seeds: Sequence[bytes], words: Sequence[str]) -> bytes:
    """One of the seeds, changed a few times, mostly by whole words: of ``words``, odd numbers and odd texts."""
    case = rng.choice(seeds)
    for _ in range(rng.choice((1, 1, 2, 2, 3, 6))):
        kind = rng.randrange(10)
        if kind < 3:
            case = _replace(rng, case, _NUMBER, rng.choice(ODD_NUMBERS))
        elif kind < 6:
            case = _replace(rng, case, _WORD, rng.choice(rng.choice((words, ODD_NUMBERS, ODD_TEXTS))))
        elif kind == 6:
            at = rng.randrange(len(case) + 1)
            word = rng.choice(rng.choice((words, ODD_TEXTS)))
            case = case[:at] + b" " + word.encode() + b" " + case[at:]
        else:
            case = rng.choice((flip, cut, repeat, splice, swap))(rng, case, rng.choice(seeds))
    return case


def _replace(rng: random.Random, case: bytes, what: re.Pattern[bytes], by: str) -> bytes:
    found = list(what.finditer(case))
    if not found:
        return case
    match = rng.choice(found)
    return case[: match.start()] + by.encode() + case[match.end() :]
