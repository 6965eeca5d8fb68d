"""Runs data layers as one of several ranks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from torch import Tensor

from bpt.config.proto import bpt_pb2 as pb
from bpt.graph.share import Share
from bpt.nn.net import Net
from bpt.nn.pass_context import PassContext
from tests.support.golden_cases import graph_of

Make = Callable[..., "Reader"]


class Reader:
    """A net of data layers on one rank."""

    def __init__(self, source: str, share: Share | None = None, ranks: int = 1, phase: int = pb.TRAIN) -> None:
        split: dict[str, Any] = {"split": lambda samples: share} if share else {}
        self.net = Net(graph_of(source, phase), PassContext(seed=5, ranks=ranks, **split))
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


def data(source: str, more: str = "", batch_size: int = 4, outer: str = "", name: str = "d") -> str:
    return (
        f'layer {{ name: "{name}" type: "Data" top: "{name}" top: "{name}_label" {outer}'
        f' data_param {{ source: "{source}" backend: LMDB batch_size: {batch_size} {more} }} }}'
    )


RANDOM = "transform_param { crop_size: 4 mirror: true }"
