"""The ways of ``scripts/bench hybrid --rivals``: what each rival is told, and on how many ranks it can train."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

NAMES = ("ONE", "DP", "DDP", "DDG", "FDG", "HYBRID")
STAGES = 2  # of HYBRID
BATCH = 6  # of the solver; DDP's ranks have equal parts of it


@dataclass(frozen=True)
class Rival:
    """A way to train on so many ranks."""

    name: str
    ranks: int

    @property
    def module(self) -> str:
        """Whose ranks train."""
        return "hybrid.plain_ranks" if self.name == "DDP" else "hybrid.rival_ranks"

    @property
    def fields(self) -> str:
        """What is laid over the solver's text."""
        stages = {"DDG": self.ranks, "FDG": self.ranks, "HYBRID": STAGES}.get(self.name, 1)
        exchange = "TREE" if self.name == "DP" else "RING"
        allocator = "" if self.name == "HYBRID" else "pipeline_param { allocator: BLOCK partition_by: LAYERS }"
        return f"parallel_param {{ num_stages: {stages} exchange: {exchange} {allocator if stages > 1 else ''} }}"

    @property
    def why_not(self) -> str:
        """What keeps it from running on so many ranks; nothing: it can."""
        if self.name == "DDP" and BATCH % self.ranks:
            return f"a batch of {BATCH} has no {self.ranks} equal parts"
        if self.name == "HYBRID" and self.ranks % STAGES:
            return f"{self.ranks} ranks are no pipelines of {STAGES}"
        return ""


def rivals_of(names: Sequence[str], ranks: Sequence[int]) -> list[Rival]:
    """ONE, to which all are compared, and the others on each number of ranks above 1."""
    return [Rival("ONE", 1)] + [Rival(name, m) for m in ranks for name in names if name != "ONE" and m > 1]
