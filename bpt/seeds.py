"""Seeds of everything random, derived from the run's seed and from what is drawn; never from a hidden global state."""

from __future__ import annotations

import hashlib


def derive_seed(seed: int, *key: str | int) -> int:
    """Return a 63-bit seed for what ``key`` names; equal on every machine and Python version."""
    text = "\x00".join(map(str, (seed, *key)))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little") >> 1
