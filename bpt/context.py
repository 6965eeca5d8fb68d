"""RunContext: what a layer may know of the run, above all the seed of everything random.

Random numbers never come from a hidden global state: each draw has a generator of its own, seeded from
the run's seed and from what is drawn (a layer's filler; a layer's mask of one iteration). So a resumed
run draws what the uninterrupted one would have drawn.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from bpt.precision import FLOAT32, Precision
from bpt.share import Share, Turning, whole_batch


def derive_seed(seed: int, *key: str | int) -> int:
    """A 63-bit seed for what ``key`` names; equal on every machine and Python version."""
    text = "\x00".join(map(str, (seed, *key)))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little") >> 1


@dataclass
class RunContext:
    """One object a run, shared by the solver and all layers of its nets.

    With many ranks the net's text, its graph and its blobs' shapes tell of the whole batch; each rank runs the
    layers on its own samples. What a layer must know of that stands here, and a rank that is alone has the same
    with one share: the whole.
    """

    seed: int = 0
    precision: Precision = FLOAT32  # of parameters, and of what layers make and take
    iteration: int = 0  # the solver's iteration, from 0
    micro: int = 0  # which of the iteration's iter_size passes
    # The share that this rank has of a batch whose text says so many samples.
    split: Callable[[int], Share] = whole_batch
    ranks: int = 1  # how many ranks share a batch
    # The sum of a tensor over the ranks that share a batch, without gradient; a collective call, made by all of
    # them in the same order. May overwrite its argument.
    total: Callable[[Tensor], Tensor] = lambda tensor: tensor
    turning: Turning | None = None  # when shares are turned; the train net's first data layer on many ranks sets it
    keeps_batches: bool = False  # each rank has whole batches, whose samples belong together: they are never turned
    rotation: float = 0.0  # shares are turned by this part of the batch in this pass; data layers set it
    columns: Share | None = None  # layers run on a slice of the features (axis 1) of all samples of their group
    sync_batch_norm: bool = False  # parallel_param's field of this name
    unweighted: bool = False  # balance_param { normalizer: UNIFORM }: each rank's mean counts alike
    # A rank's share goes through the net in so many micro-batches. If there are several numbers, parts are cut again;
    # the last number is that of the micro-batches of a rank, and those before stand for ranks.
    cuts: tuple[int, ...] = ()
    part: int | None = None  # which micro-batch the layers have now; None: the whole share

    def generator(self, *key: str | int, device: torch.device | str = "cpu") -> torch.Generator:
        """A generator for what ``key`` names; the same every time it is asked for."""
        return torch.Generator(device).manual_seed(derive_seed(self.seed, *key))

    def pass_generator(self, *key: str | int, device: torch.device | str = "cpu") -> torch.Generator:
        """Like ``generator``, but different in every forward pass of training."""
        return self.generator(*key, self.iteration, self.micro, device=device)

    @property
    def turns(self) -> bool:
        """Whether ranks get other samples of a batch in each epoch: they, or cuts that stand for ranks, are several."""
        return not self.keeps_batches and (self.ranks > 1 or math.prod(self.cuts[:-1]) > 1)

    @property
    def is_divided(self) -> bool:
        """Whether layers have some samples of the batch only."""
        return self.ranks > 1 or self.part is not None

    def share(self, samples: int) -> Share:
        """What layers have now of a batch whose text says so many samples: of this rank's share, the micro-batch."""
        return self.part_of(self.split(samples))

    def part_of(self, share: Share) -> Share:
        """Of a share, the micro-batch that layers have now."""
        number, parts = self.part or 0, math.prod(self.cuts)
        for cut in self.cuts if self.part is not None else ():
            parts //= cut
            share = share.part(number // parts % cut, cut)
        return share

    def own_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape that layers have now of a blob whose shape, for the whole batch, is ``shape``."""
        return (self.share(shape[0]).count, *shape[1:]) if self.is_divided and shape else shape

    @contextmanager
    def on_slice(self, columns: Share, split: Callable[[int], Share]) -> Iterator[None]:
        """Layers that run inside have ``columns`` of the features of the samples that ``split`` tells."""
        before = self.columns, self.split
        self.columns, self.split = columns, split
        try:
            yield
        finally:
            self.columns, self.split = before
