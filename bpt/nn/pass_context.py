"""PassContext: what a layer may know of the run and of its pass, above all the seed of everything random.

Random numbers never come from a hidden global state: each draw has a generator of its own, seeded from
the run's seed and from what is drawn (a layer's filler; a layer's mask of one iteration). So a resumed
run draws what the uninterrupted one would have drawn.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from bpt.base.seeds import derive_seed
from bpt.config.precision import FLOAT32, Precision
from bpt.graph.share import Share, whole_batch


def _alone(tensor: Tensor) -> Tensor:
    return tensor


@dataclass(frozen=True)
class PassContext:
    """One object a pass: the operator makes the next one by ``replace``, and the Net hands it to all its layers.

    With many ranks the net's text, its graph and its blobs' shapes tell of the whole batch; each rank runs the
    layers on its own samples. What a layer must know of that stands here, and a rank that is alone has the same
    with one share: the whole.

    Of the run:

    Attributes:
        seed: of everything random.
        precision: of parameters, and of what layers make and take.
        split: the share that this rank has of a batch whose text says so many samples.
        ranks: how many ranks share a batch.
        total: the sum of a tensor over the ranks that share a batch, without gradient; a collective call, made by all
            of them in the same order. May overwrite its argument.
        keeps_batches: each rank has whole batches, whose samples belong together: shares are never rotated.
        sync_batch_norm: ``parallel_param``'s field of this name.
        unweighted: ``balance_param { normalizer: UNIFORM }``: each rank's mean counts alike.
        micro_batch_splits: a rank's share goes through the net in so many micro-batches. If there are several numbers,
            parts are split again; the last one is that of the micro-batches of a rank, and those before stand for
            ranks.

    Of the pass:

    Attributes:
        iteration: the solver's, from 0.
        pass_number: which of the iteration's ``iter_size`` passes.
        micro_batch: which one the layers have now; ``None``: the whole share.
        rotation: shares are rotated by this part of the batch.
        columns: layers run on a slice of the features (axis 1) of all samples of their group.
        loss_scale: diffs are so many times what they are without it, since those of losses begin so.
    """

    seed: int = 0
    precision: Precision = FLOAT32
    iteration: int = 0
    pass_number: int = 0
    split: Callable[[int], Share] = whole_batch
    ranks: int = 1
    total: Callable[[Tensor], Tensor] = _alone
    keeps_batches: bool = False
    sync_batch_norm: bool = False
    unweighted: bool = False
    micro_batch_splits: tuple[int, ...] = ()
    micro_batch: int | None = None
    rotation: float = 0.0
    columns: Share | None = None
    loss_scale: float = 1.0

    def generator(self, *key: str | int, device: torch.device | str = "cpu") -> torch.Generator:
        """Return a generator for what ``key`` names; the same every time it is asked for."""
        return torch.Generator(device).manual_seed(derive_seed(self.seed, *key))

    def pass_generator(self, *key: str | int, device: torch.device | str = "cpu") -> torch.Generator:
        """Like ``generator``, but different in every forward pass of training."""
        return self.generator(*key, self.iteration, self.pass_number, device=device)

    @property
    def rotates(self) -> bool:
        """Whether ranks get other samples of a batch in each epoch: they, or splits that stand for them."""
        return not self.keeps_batches and (self.ranks > 1 or math.prod(self.micro_batch_splits[:-1]) > 1)

    @property
    def is_divided(self) -> bool:
        """Whether layers have some samples of the batch only."""
        return self.ranks > 1 or self.micro_batch is not None

    def share(self, samples: int) -> Share:
        """What layers have now of a batch whose text says so many samples: of this rank's share, the micro-batch."""
        return self.part_of(self.split(samples))

    def part_of(self, share: Share) -> Share:
        """Of a share, the micro-batch that layers have now."""
        if self.micro_batch is None:
            return share
        parts = math.prod(self.micro_batch_splits)
        for split in self.micro_batch_splits:
            parts //= split
            share = share.part(self.micro_batch // parts % split, split)
        return share

    def own_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape that layers have now of a blob whose shape, for the whole batch, is ``shape``."""
        return (self.share(shape[0]).count, *shape[1:]) if self.is_divided and shape else shape


class CurrentPass:
    """Where the layers of one net find the context of the pass under way; only their Net sets it."""

    __slots__ = ("context",)

    def __init__(self, context: PassContext) -> None:
        self.context = context
