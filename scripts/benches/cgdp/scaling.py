"""Fig. 6 of the CGDP paper: time of an iteration and memory of a rank, on 1, 2, 4, … ranks with a batch each.

Each rank computes with one thread or on a GPU of its own. CGDP wants cores that are left over; how many there are is
told beside each number of ranks, and times of more ranks than cores say little.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from bpt.base.log import columns
from scripts.benches.cgdp.jobs import Done, Turn, Way, Work
from scripts.benches.cgdp.results import ALONE, ORIGINAL, Outcome, Outcomes, relative
from scripts.benches.harness.launch import JobError

Scaled = Mapping[int, Outcomes]  # number of ranks → way → outcome


@dataclass
class Scaling:
    """The ways to train one network on several numbers of ranks.

    Args:
        base: what is common to all jobs.
        alone, ways: on one rank, and on more.
        run: does a job.
        gpus: numbers of devices, as many as there are ranks at most; none: on the CPU.
        note: tells what happens.

    Attributes:
        failed: what could not be done → why.
    """

    base: Work
    alone: Way
    ways: Sequence[Way]
    run: Callable[[Work], Done]
    gpus: Sequence[str] = ()
    note: Callable[[str], None] = print
    failed: dict[str, str] = field(default_factory=dict)

    def measure(self, ranks: Iterable[int], rounds: int, known: Scaled | None = None) -> dict[int, Outcomes]:
        """All ways on so many ranks, in turn.

        Args:
            known: is taken over as it is.
        """
        found = dict(known or {})
        for number in ranks:
            if number not in found:
                outcomes = self._outcomes(number, rounds)
                if outcomes:
                    found[number] = outcomes
        return dict(sorted(found.items()))

    def _outcomes(self, ranks: int, rounds: int) -> dict[str, Outcome]:
        ways = tuple(self.ways) if ranks > 1 else (self.alone,)
        base = replace(self.base, ranks=ranks, gpu=",".join(self.gpus[:ranks]))
        turns: dict[str, list[Turn]] = {}
        for number in range(rounds):
            done = self._attempt(replace(base, ways=ways[:: 1 if number % 2 == 0 else -1], turns=2), "in turn")
            for name, more in done.turns.items() if done else ():
                turns.setdefault(name, []).extend(more)
        outcomes = {}
        for way in ways:
            if way.name in turns:
                done = self._attempt(replace(base, ways=(way,), iterations=2), f"memory of {way.name}")
                peak = max(done.peak) if done else 0
                outcomes[way.name] = Outcome(tuple(turns[way.name]), way.lengths, peak)
        return outcomes

    def _attempt(self, work: Work, what: str) -> Done | None:
        """Do a job; if it fails, say so."""
        what = f"{work.ranks} rank{'s' * (work.ranks > 1)}, {what}"
        self.note(f"{work.net}: {what}")
        try:
            return self.run(work)
        except JobError as error:
            self.failed[what] = str(error)
            self.note(f"{work.net}: {what}: FAILED: {error}")
            return None


def cores_left(ranks: int) -> int:
    """Cores that have nothing else to do beside so many ranks of one thread."""
    return len(os.sched_getaffinity(0)) - ranks


SCALING = (
    "net", "ranks", "cores_left", "batch_per_rank", "way", "seconds", "spread", "images_per_second", "efficiency",
    "speedup_origdp", "peak_bytes",
)  # fmt: skip


def scaling_rows(net: str, batch: int, scaled: Scaled) -> Iterator[tuple[object, ...]]:
    """A row for each number of ranks and way, in the columns of SCALING."""
    alone = scaled.get(1, {}).get(ALONE)
    for ranks, outcomes in scaled.items():
        for way, outcome in outcomes.items():
            seconds = outcome.seconds
            yield (
                net, ranks, cores_left(ranks), batch, way, seconds, outcome.spread, ranks * batch / seconds,
                alone.seconds / seconds if alone else "",
                outcomes[ORIGINAL].seconds / seconds if ORIGINAL in outcomes else "",
                outcome.peak or "",
            )  # fmt: skip


def scaling_table(scaled: Scaled) -> Iterator[str]:
    """A line for each number of ranks and way."""
    alone = scaled.get(1, {}).get(ALONE)
    lines = [["ranks", "cores left", "way", "ms", "±", "x OrigDP", "efficiency", "MiB"]]
    for ranks, outcomes in scaled.items():
        for way, outcome in outcomes.items():
            lines.append(
                [
                    str(ranks), str(cores_left(ranks)), way, f"{outcome.seconds * 1e3:.2f}",
                    f"{outcome.spread * 1e3:.2f}", relative(outcomes, way, ORIGINAL),
                    f"{alone.seconds / outcome.seconds:.1%}" if alone else "",
                    f"{outcome.peak / 2**20:.0f}" if outcome.peak else "",
                ]
            )  # fmt: skip
    yield from columns(lines, left=3)
    if any(cores_left(ranks) < 1 for ranks in scaled if ranks > 1):
        yield "cores left: below 1, the exchange of CGDP takes cores that compute; below 0, ranks share cores."
