"""Derive the seeds of all random numbers from the run's seed and a key; there is no hidden global state."""

from __future__ import annotations

import hashlib


def derive_seed(seed: int, *key: str | int) -> int:
    """Return the 63-bit seed for ``key``; it is equal on every machine and Python version."""
    text = "\x00".join(map(str, (seed, *key)))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little") >> 1
