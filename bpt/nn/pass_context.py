"""PassContext: the state of the run and of the pass that layers may read, above all the seed of random numbers.

Random numbers never come from a hidden global state. Each draw has its own generator, seeded from the run's seed and
from the purpose of the draw (a layer's filler; a layer's mask of one iteration). So a resumed run draws the numbers
that the uninterrupted one would have drawn.
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
from bpt.nn.kernels.linear import DeferredProduct


def _alone(tensor: Tensor, layer: str) -> Tensor:
    return tensor


@dataclass(frozen=True)
class PassContext:
    """The facts about a run and a pass that layers may read; one frozen object for each pass.

    The operator makes the next one by ``replace``, and the Net hands it to all its layers. With many ranks the net's
    text, its graph and its blobs' shapes describe the whole batch. Each rank runs the layers on its own samples. A
    single rank has one share: the whole. The attributes up to ``micro_batch_splits`` are those of the run, the others
    those of the pass.

    Attributes:
        seed: the seed of all random numbers.
        precision: the number types of parameters, and of the bottoms and tops of layers.
        split: returns the share of this rank in a batch of the text's size.
        ranks: the number of ranks that share a batch.
        total: returns the sum of a tensor over the ranks that share a batch and run the layer of this name, without
            gradient. It is a collective call, which all of them make in the same order. It may overwrite its argument.
        keeps_batches: whether each rank has whole batches, whose samples belong together; shares are then never
            rotated.
        sync_batch_norm: ``parallel_param``'s field of this name.
        unweighted: ``balance_param { normalizer: UNIFORM }``: the mean of each rank counts the same.
        micro_batch_splits: the numbers of micro-batches into which a rank's share is split. With several numbers, parts
            are split again. The last one is that of the micro-batches of a rank; those before represent ranks.
        iteration: the solver's iteration, from 0.
        pass_number: the number of the pass among the ``iter_size`` passes of the iteration.
        micro_batch: the current micro-batch; ``None`` means the whole share.
        rotation: the part of the batch by which shares are rotated.
        columns: the slice of the features (axis 1) of all samples of the group on which layers run.
        loss_scale: the factor of all diffs, with which those of losses begin.
        product: collects what the gradient of a fully connected layer's weights needs, if that is computed later.
    """

    seed: int = 0
    precision: Precision = FLOAT32
    iteration: int = 0
    pass_number: int = 0
    split: Callable[[int], Share] = whole_batch
    ranks: int = 1
    total: Callable[[Tensor, str], Tensor] = _alone
    keeps_batches: bool = False
    sync_batch_norm: bool = False
    unweighted: bool = False
    micro_batch_splits: tuple[int, ...] = ()
    micro_batch: int | None = None
    rotation: float = 0.0
    columns: Share | None = None
    loss_scale: float = 1.0
    product: DeferredProduct | None = None

    def generator(self, *key: str | int, device: torch.device | str = "cpu") -> torch.Generator:
        """Return a generator for the purpose ``key``; each call returns the same one."""
        return torch.Generator(device).manual_seed(derive_seed(self.seed, *key))

    def pass_generator(self, *key: str | int, device: torch.device | str = "cpu") -> torch.Generator:
        """Return a generator like ``generator``, but a different one in every forward pass of training."""
        return self.generator(*key, self.iteration, self.pass_number, device=device)

    def of_pass(self, iteration: int, number: int, rotation: float, loss_scale: float) -> PassContext:
        """Return the context of another pass of this run: the ``number``-th of an iteration.

        It equals ``replace``, which takes three times as long: noticeable in the pass of a small net.
        """
        other = object.__new__(type(self))
        own = {"iteration": iteration, "pass_number": number, "rotation": rotation, "loss_scale": loss_scale}
        other.__dict__.update(self.__dict__, **own)
        return other

    @property
    def rotates(self) -> bool:
        """Whether the samples of a rank, or of a split that represents one, change in each epoch."""
        return not self.keeps_batches and (self.ranks > 1 or math.prod(self.micro_batch_splits[:-1]) > 1)

    @property
    def is_divided(self) -> bool:
        """Whether layers have only a part of the batch."""
        return self.ranks > 1 or self.micro_batch is not None

    def share(self, samples: int) -> Share:
        """Return the samples that layers now have of a batch of the text's size: this rank's share or micro-batch."""
        return self.part_of(self.split(samples))

    def part_of(self, share: Share) -> Share:
        """Return the current micro-batch of a share."""
        if self.micro_batch is None:
            return share
        parts = math.prod(self.micro_batch_splits)
        for split in self.micro_batch_splits:
            parts //= split
            share = share.part(self.micro_batch // parts % split, split)
        return share

    def own_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the current shape of a blob whose shape, for the whole batch, is ``shape``."""
        return (self.share(shape[0]).count, *shape[1:]) if self.is_divided and shape else shape


class CurrentPass:
    """The holder of the current context for the layers of one net; only their Net sets it."""

    __slots__ = ("context",)

    def __init__(self, context: PassContext) -> None:
        self.context = context
