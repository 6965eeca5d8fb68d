"""Runs data layers as one of several ranks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from bpt.config.proto import bpt_pb2 as pb
from bpt.graph.share import Share, rotation
from bpt.nn.net import Net
from bpt.nn.pass_context import PassContext
from tests.support.golden_cases import graph_of
from tests.support.layer_ranks import shares_of, whole_of

Make = Callable[..., "Reader"]


class Reader:
    """A net of data layers on one rank."""

    def __init__(
        self, source: str, share: Share | None = None, ranks: int = 1, phase: int = pb.TRAIN, seed: int = 5
    ) -> None:
        split: dict[str, Any] = {"split": lambda samples: share} if share else {}
        self.net = Net(graph_of(source, phase), PassContext(seed=seed, ranks=ranks, **split))
        self.layer: Any = self.net.layers[0]  # a data layer; its class is that of the text

    @property
    def rotation(self) -> float:
        """Of the last batch."""
        return self.net.context.rotation

    def next(self, iteration: int = 0) -> list[Tensor]:
        self.net.enter(replace(self.net.context, iteration=iteration, rotation=self.net.next_rotation()))
        values: dict[int, Tensor] = {}
        self.net.run(0, len(self.net.graph), values)
        return [values[edge.index] for edge in self.net.graph.edges]

    def labels(self, batches: int) -> list[float]:
        return [label for _ in range(batches) for label in self.next()[1].tolist()]


def check_together(
    make: Make, source: str, counts: Sequence[int], samples: int, rounds: int = 6, iterations: bool = False
) -> None:
    """Ranks that have so many samples each have, together, the batches of one process; each epoch turns them.

    Args:
        counts: the samples of each rank in a batch.
        samples: of the data set; 0: of a source without epochs, which is never turned.
        iterations: each batch is of an iteration of its own, as it matters to random numbers.
    """
    alone = make(source)
    ranks = [make(source, share, len(counts)) for share in shares_of(counts)]
    size = sum(counts)
    for number in range(rounds):
        turned = rotation(size * number // samples) if samples and len(counts) > 1 else 0.0
        batch, *shares = (each.next(number if iterations else 0) for each in (alone, *ranks))
        for top, parts in zip(batch, zip(*shares, strict=True), strict=True):
            assert torch.equal(whole_of(parts, counts, turned), top)
        assert {rank.rotation for rank in ranks} == {turned}
        # A snapshot does not tell how many ranks there were.
        if samples:
            assert {rank.layer.position for rank in (alone, *ranks)} == {size * (number + 1)}


def check_allocated(make: Make, all_samples: str, some: str) -> None:
    """A node that has three of ten samples makes of them what one process makes, in every pass.

    Args:
        all_samples: the text of a layer whose batch is the data set.
        some: the same, with batches of three.
    """
    alone, node = make(all_samples), make(some)
    epochs = [alone.next() for _ in range(3)]
    node.layer.allocate([(8, 10), (1, 2)])
    mine = epochs[0][1][[1, 8, 9]].tolist()
    for number, (batch, label) in enumerate(epochs, 1):
        rows = [row for row, value in enumerate(label.tolist()) if value in mine]
        assert all(map(torch.equal, node.next(), (batch[rows], label[rows])))
        assert (node.layer.passes, node.layer.pass_end) == (number, 3 * number + 3)


def data(source: str, more: str = "", batch_size: int = 4, outer: str = "", name: str = "d") -> str:
    return (
        f'layer {{ name: "{name}" type: "Data" top: "{name}" top: "{name}_label" {outer}'
        f' data_param {{ source: "{source}" backend: LMDB batch_size: {batch_size} {more} }} }}'
    )


RANDOM = "transform_param { crop_size: 4 mirror: true }"
