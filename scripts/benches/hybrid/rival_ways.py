"""The ways of ``scripts/bench hybrid --rivals``: what each rival is told, and on how many ranks it can train."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

NAMES = ("ONE", "DP", "DDP", "ASGD", "DDG", "FDG", "HYBRID", "HYBRID_ASGD")
STAGES = 2  # of HYBRID and HYBRID_ASGD
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
    def is_asynchronous(self) -> bool:
        """Whether its replicas do not go in step."""
        return self.name.endswith("ASGD")

    @property
    def is_hybrid(self) -> bool:
        """Whether it is the paper's pipeline, placed as the solver says."""
        return self.name.startswith("HYBRID")

    @property
    def fields(self) -> str:
        """What is laid over the solver's text."""
        stages = STAGES if self.is_hybrid else self.ranks if self.name in ("DDG", "FDG") else 1
        exchange = "TREE" if self.name == "DP" else "ASGD server: COLOCATED" if self.is_asynchronous else "RING"
        allocator = "" if self.is_hybrid else "pipeline_param { allocator: BLOCK partition_by: LAYERS }"
        return f"parallel_param {{ num_stages: {stages} exchange: {exchange} {allocator if stages > 1 else ''} }}"

    @property
    def why_not(self) -> str:
        """What keeps it from running on so many ranks; nothing: it can."""
        if self.name == "DDP" and BATCH % self.ranks:
            return f"a batch of {BATCH} has no {self.ranks} equal parts"
        if self.is_hybrid and self.ranks % STAGES:
            return f"{self.ranks} ranks are no pipelines of {STAGES}"
        if self.name == "HYBRID_ASGD" and self.ranks == STAGES:
            return "one pipeline has no replicas"
        return ""


def rivals_of(names: Sequence[str], ranks: Sequence[int]) -> list[Rival]:
    """ONE, to which all are compared, and the others on each number of ranks above 1."""
    return [Rival("ONE", 1)] + [Rival(name, m) for m in ranks for name in names if name != "ONE" and m > 1]


def quick_rivals(names: Sequence[str]) -> list[Rival]:
    """All on as few ranks as a pipeline has, and the hybrids with two pipelines, too."""
    two_pipelines = [Rival(name, 2 * STAGES) for name in names if Rival(name, STAGES).is_hybrid]
    return [rival for rival in rivals_of(names, [STAGES]) if rival.name != "HYBRID_ASGD"] + two_pipelines
