"""RunContext: what a layer may know of the run, above all the seed of everything random.

Random numbers never come from a hidden global state: each draw has a generator of its own, seeded from
the run's seed and from what is drawn (a layer's filler; a layer's mask of one iteration). So a resumed
run draws what the uninterrupted one would have drawn.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import torch


def derive_seed(seed: int, *key: str | int) -> int:
    """A 63-bit seed for what ``key`` names; equal on every machine and Python version."""
    text = "\x00".join(map(str, (seed, *key)))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little") >> 1


@dataclass
class RunContext:
    """One object a run, shared by the solver and all layers of its nets."""

    seed: int = 0
    iteration: int = 0  # the solver's iteration, from 0
    micro: int = 0  # which of the iteration's iter_size passes

    def generator(self, *key: str | int, device: torch.device | str = "cpu") -> torch.Generator:
        """A generator for what ``key`` names; the same every time it is asked for."""
        return torch.Generator(device).manual_seed(derive_seed(self.seed, *key))

    def pass_generator(self, *key: str | int, device: torch.device | str = "cpu") -> torch.Generator:
        """Like ``generator``, but different in every forward pass of training."""
        return self.generator(*key, self.iteration, self.micro, device=device)
