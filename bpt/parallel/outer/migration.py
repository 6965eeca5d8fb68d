"""Migration: samples change hands between nodes that are alive (BPT-CNN, section 3.2.2).

The paper's main server "monitors the training time costs on computing nodes and migrates datasets"; its section 3.3.1
moves none. IDPA settles each node's share when it hands out the last batch. If a node becomes slower or quicker after
that, all others wait for the slowest, or end before it, until the run ends. With ``migrate: true`` the samples are
divided anew then, by the rule that has divided them before (Eq. 3 and 4, with nothing new to hand out).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from bpt.parallel.outer.idpa import Idpa

CHANGED = 0.15  # a time that differs by more than this part from that of the last division: the node has changed
WORTH = 0.1  # samples migrate if the longest pass is expected to become shorter by more than this part


@dataclass(frozen=True)
class PlannedMove:
    """Samples that a node is to give to another one at the end of its pass.

    Attributes:
        giver, taker: the nodes.
        samples: how many.
        times: seconds of a sample at the last division and now, of the giver and then of the taker; 0: not measured.
        longest: seconds of the longest pass of all nodes, if nothing moves and if all moves are made.
    """

    giver: int
    taker: int
    samples: int
    times: tuple[float, float, float, float]
    longest: tuple[float, float]


def moves(have: Sequence[int], wanted: Sequence[int]) -> list[tuple[int, int, int]]:
    """Return (giver, taker, samples) that lead from ``have`` to ``wanted``, both in order of the nodes."""
    givers = [[node, have - want] for node, (have, want) in enumerate(zip(have, wanted, strict=True)) if have > want]
    found = []
    for taker, (held, want) in enumerate(zip(have, wanted, strict=True)):
        missing = want - held
        while missing > 0:
            giver, spare = givers[0]
            moved = min(spare, missing)
            found.append((giver, taker, moved))
            missing -= moved
            givers[0][1] -= moved
            if not givers[0][1]:
                givers.pop(0)
    return found


class Migration:
    """Decides which samples migrate, and holds what the nodes are still to give.

    Samples change hands between passes only: a node gives them when its pass ends, and another one has them from its
    next pass on. Until all of a division have changed hands, no other one is made.

    Args:
        idpa: has divided the samples.
    """

    def __init__(self, idpa: Idpa) -> None:
        self._idpa = idpa
        self._planned: dict[int, list[PlannedMove]] = defaultdict(list)  # by giver

    def __bool__(self) -> bool:
        """Return whether nodes are still to give samples."""
        return bool(self._planned)

    def has_changed(self, node: int, seconds_per_sample: float | None) -> bool:
        """Return whether a node takes another time for a sample than when the samples were divided."""
        was = self._idpa.measured(node)
        if seconds_per_sample is None or not self._idpa.has(node):
            return False
        return was is None or abs(seconds_per_sample / was - 1) > CHANGED

    def plan(self, seconds_per_sample: Sequence[float | None]) -> None:
        """Plan the moves by which all nodes finish a pass together, if that is worth it.

        Nodes without samples get none, and no node gives all that it has.

        Args:
            seconds_per_sample: as for ``Idpa.next``, but over so long that they are certain.
        """
        idpa = self._idpa
        nodes, have, wanted = idpa.redivided(seconds_per_sample)
        times = idpa.seconds(seconds_per_sample)
        before, after = (
            max((count * times[node] for node, count in zip(nodes, counts, strict=True)), default=0.0)
            for counts in (have, wanted)
        )
        if before * (1 - WORTH) <= after:
            idpa.note([None if idpa.measured(node) else time for node, time in enumerate(seconds_per_sample)])
            return
        was = [idpa.measured(node) or 0.0 for node in nodes]
        for giver, taker, samples in moves(have, wanted):
            pair = was[giver], times[nodes[giver]], was[taker], times[nodes[taker]]
            self._planned[nodes[giver]].append(PlannedMove(nodes[giver], nodes[taker], samples, pair, (before, after)))
        idpa.note(seconds_per_sample)

    def pop(self, giver: int) -> list[PlannedMove]:
        """Return the moves that ``giver`` makes now, of those whose nodes both still train."""
        return [move for move in self._planned.pop(giver, []) if self._idpa.has(giver) and self._idpa.has(move.taker)]

    def clear(self) -> None:
        """Drop all moves that have not been made."""
        self._planned.clear()
