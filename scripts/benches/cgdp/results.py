"""What ``scripts/bench cgdp`` makes of the times it has taken: statistics, the table, and CSV files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median, quantiles

from bpt.base.log import columns
from bpt.parallel.cgdp.chunks import describe
from scripts.benches.cgdp.jobs import Turn

ALONE, APART, ORIGINAL, ALLREDUCE = "one process", "no exchange", "OrigDP", "ALLREDUCE"
SEARCH, MODEL = "CGDP search", "CGDP model"
BLOCK = 10  # iterations, as in Fig. 3
RUN = 1000  # iterations of the run that a search is to pay off in
WITHIN, COST = 0.05, 0.01  # goals: of the choice from the best size, and of the search's cost


def fixed(size: int) -> str:
    """The name of CGDP with this chunk size."""
    return f"CGDP {size}"


def size_of(way: str) -> int | None:
    """The chunk size of a way that has a fixed one."""
    word = way.removeprefix("CGDP ")
    return int(word) if word != way and word.isdecimal() else None


@dataclass(frozen=True)
class Search:
    """A run's first iterations, in which it has chosen its chunks.

    Attributes:
        settling: seconds of each iteration until the chunks were settled.
        after: seconds of the iterations that followed.
        trials: chunks, seconds.
    """

    settling: tuple[float, ...]
    after: tuple[float, ...]
    trials: tuple[tuple[tuple[int, ...], float], ...] = ()


@dataclass(frozen=True)
class Outcome:
    """All turns of one way to train. Times are medians, in seconds of an iteration.

    Phases are those of the rank that waits least for others in each turn: what a slower neighbour makes it wait is no
    communication.

    Attributes:
        turns: at least one.
        lengths: layers of each chunk, from the top layer down; empty without chunks.
        peak: bytes of memory of the rank that took most; 0: not measured.
        search: how the chunks were chosen, if they were.
    """

    turns: tuple[Turn, ...]
    lengths: tuple[int, ...] = ()
    peak: int = 0
    search: Search | None = None

    @property
    def seconds(self) -> float:
        """Of an iteration, over all iterations of all turns."""
        return median(self._all)

    @property
    def spread(self) -> float:
        """Half the distance between the quartiles of the iterations."""
        if len(self._all) < 2:
            return 0.0
        first, _, third = quantiles(self._all, n=4, method="inclusive")
        return (third - first) / 2

    @property
    def _all(self) -> list[float]:
        return [seconds for turn in self.turns for seconds in turn.seconds]

    def phase(self, *names: str) -> float:
        """These phases together."""
        return median(sum(least_waiting(turn)[name] for name in names) for turn in self.turns)

    @property
    def exposed(self) -> float:
        """Communication that an iteration waits for: that of gradients and, with OrigDP, of weights."""
        return self.phase("broadcast", "exchange")

    @property
    def backward(self) -> float:
        """The paper's T or T': backward, and the communication that it does not hide."""
        return self.phase("broadcast", "backward", "exchange")

    @property
    def blocks(self) -> list[float]:
        """Seconds of BLOCK iterations in a row; of as many as a turn has, scaled, if it has fewer."""
        return [
            sum(run) * BLOCK / len(run)
            for turn in self.turns
            for run in runs(turn.seconds, min(BLOCK, len(turn.seconds)))
        ]


Outcomes = Mapping[str, Outcome]


def least_waiting(turn: Turn) -> Mapping[str, float]:
    """The phases of the rank that waits least in a turn."""
    return min(turn.ranks, key=lambda phases: phases["broadcast"] + phases["exchange"])


def runs(values: Sequence[float], length: int) -> list[Sequence[float]]:
    """``values`` in runs of so many; what is left over is left out."""
    return [values[start : start + length] for start in range(0, len(values) - length + 1, length)]


def fixed_sizes(outcomes: Outcomes) -> list[int]:
    """The chunk sizes that were fixed, in order."""
    return sorted(size for way in outcomes if (size := size_of(way)) is not None)


def best_size(outcomes: Outcomes) -> int | None:
    """The chunk size with the least time of those that were fixed."""
    return min(fixed_sizes(outcomes), key=lambda size: outcomes[fixed(size)].seconds, default=None)


def search_cost(search: Search, seconds: float) -> float:
    """How much longer the iterations of a search took than with the best chunks, as a share of a run of RUN iterations.

    The first ones, slower in any run until memory and caches are warm, count too.

    Args:
        seconds: of an iteration with the best chunks.
    """
    return (sum(search.settling) - seconds * len(search.settling)) / (seconds * RUN)


def relative(outcomes: Outcomes, way: str, to: str) -> str:
    """How many times as fast as ``to``; "" if that was not measured."""
    return f"{outcomes[to].seconds / outcomes[way].seconds:.2f}" if to in outcomes else ""


HEAD = (
    "way", "ms", "±", "x OrigDP", "x ALLREDUCE", "backward", "exposed", "T", "T_O", "efficiency", "MiB", "  chunks",
)  # fmt: skip
LEGEND = """\
ms, ±: of an iteration, the median, and half the distance of the quartiles; backward to T_O are ms, too
x OrigDP, x ALLREDUCE: how many times as fast as these
backward, exposed: the phase by itself, and the communication that it does not hide (exchange, broadcast); T: both
T_O: what an iteration takes more than without exchange, where the ranks train at the same time, each for itself
efficiency: of weak scaling, the time of one process with a rank's batch over the time of all ranks with theirs
MiB: peak memory of a rank; the gradient areas of CGDP, which the ranks share, count on each
"""


def table(outcomes: Outcomes) -> Iterator[str]:
    """A line a way."""
    rows: list[tuple[str, ...]] = [HEAD]
    for way, outcome in outcomes.items():
        scaling = f"{outcomes[ALONE].seconds / outcome.seconds:.1%}" if ALONE in outcomes else ""
        over = f"{(outcome.seconds - outcomes[APART].seconds) * 1e3:.2f}" if APART in outcomes else ""
        rows.append(
            (
                way,
                f"{outcome.seconds * 1e3:.2f}",
                f"{outcome.spread * 1e3:.2f}",
                *(relative(outcomes, way, to) for to in (ORIGINAL, ALLREDUCE)),
                *(f"{each * 1e3:.2f}" for each in (outcome.phase("backward"), outcome.exposed, outcome.backward)),
                "" if way in (ALONE, APART) else over,
                scaling,
                f"{outcome.peak / 2**20:.0f}" if outcome.peak else "",
                f"  {describe(outcome.lengths)}" if outcome.lengths else "",
            )
        )
    last = max(len(row[-1]) for row in rows)
    yield from columns([(*row[:-1], row[-1].ljust(last)) for row in rows], left=1)


def verdicts(outcomes: Outcomes) -> Iterator[str]:
    """What search and model have chosen: how far from the best fixed size, and what the search cost."""
    size = best_size(outcomes)
    if size is None:
        return
    best = outcomes[fixed(size)].seconds
    yield f"best fixed chunk size: {size}, of {', '.join(map(str, fixed_sizes(outcomes)))}"
    for way in (SEARCH, MODEL):
        if way not in outcomes:
            continue
        outcome = outcomes[way]
        away = outcome.seconds / best - 1
        yield (
            f"{way}: chose chunks {describe(outcome.lengths)}, {away:+.1%} from the best fixed size "
            f"(goal: at most {WITHIN:+.0%}, {_word(away <= WITHIN)})"
        )
        if outcome.search:
            cost = search_cost(outcome.search, best)
            yield (
                f"{way}: its {len(outcome.search.settling)} iterations cost {cost:.2%} of a run of {RUN:,} "
                f"(goal: less than {COST:.0%}, {_word(cost < COST)})"
            )


MEBI = 2**20


def memory_on_cpu(outcomes: Outcomes) -> str:
    """How CGDP's memory compares with OrigDP's on a CPU, which has no memory apart; "": not known."""
    original = outcomes[ORIGINAL].peak if ORIGINAL in outcomes else 0
    ours = max((outcome.peak for way, outcome in outcomes.items() if way.startswith("CGDP")), default=0)
    if not (original and ours):
        return ""
    more = (ours - original) / MEBI
    return (
        f"memory of a rank: {more:+.0f} MiB with CGDP against OrigDP. On a CPU the areas of gradients lie in the "
        "memory that ranks compute in; on a GPU they are the host's, and CGDP frees memory"
    )


def _word(reached: bool) -> str:
    return "reached" if reached else "missed"


SUMMARY = (
    "net", "ranks", "size", "batch_per_rank", "engine", "way", "turns", "iterations", "seconds", "spread",
    "speedup_origdp", "speedup_allreduce", "forward", "backward", "exchange", "broadcast", "update", "exposed", "T",
    "efficiency", "peak_bytes", "chunks",
)  # fmt: skip
PHASES = ("forward", "backward", "exchange", "broadcast", "update")


def summary_rows(facts: Sequence[object], outcomes: Outcomes) -> Iterator[tuple[object, ...]]:
    """A row a way, in the columns of SUMMARY; ``facts`` are the first five."""
    for way, outcome in outcomes.items():
        iterations = sum(len(turn.seconds) for turn in outcome.turns)
        yield (
            *facts, way, len(outcome.turns), iterations, outcome.seconds, outcome.spread,
            *(outcomes[to].seconds / outcome.seconds if to in outcomes else "" for to in (ORIGINAL, ALLREDUCE)),
            *(outcome.phase(name) for name in PHASES), outcome.exposed, outcome.backward,
            outcomes[ALONE].seconds / outcome.seconds if ALONE in outcomes else "",
            outcome.peak or "", describe(outcome.lengths) if outcome.lengths else "",
        )  # fmt: skip


ITERATIONS = ("net", "way", "turn", "phase", "iteration", "seconds")


def iteration_rows(net: str, outcomes: Outcomes) -> Iterator[tuple[object, ...]]:
    """Every single iteration, in the columns of ITERATIONS; turns count from 0, a search has none."""
    for way, outcome in outcomes.items():
        times: list[tuple[object, str, Sequence[float]]] = []
        if outcome.search:
            times += [("", "search", outcome.search.settling), ("", "after search", outcome.search.after)]
        times += [(number, "turn", turn.seconds) for number, turn in enumerate(outcome.turns)]
        for number, phase, each in times:
            for iteration, seconds in enumerate(each):
                yield net, way, number, phase, iteration, seconds


TRIALS = ("net", "way", "trial", "chunks", "seconds")


def trial_rows(net: str, outcomes: Outcomes) -> Iterator[tuple[object, ...]]:
    """What searches have tried, in the columns of TRIALS."""
    for way, outcome in outcomes.items():
        for number, (lengths, seconds) in enumerate(outcome.search.trials if outcome.search else ()):
            yield net, way, number, describe(lengths), seconds
