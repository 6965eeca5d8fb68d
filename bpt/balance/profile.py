"""Profile: the measured speeds of the ranks of a run, and whether they are those of another run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from bpt.balance.precision import Estimate
from bpt.balance.speed import SpeedFunction
from bpt.balance.static import Static
from bpt.errors import FileError

SHOWN = 4  # differences that a message spells out


@dataclass(frozen=True)
class RankFacts:
    """What a rank's speed depends on, besides the network."""

    host: str
    device: str  # with its model: "cpu (…)", "cuda (…)"
    threads: int


@dataclass(frozen=True)
class Facts:
    """What the speeds of a run depend on.

    Attributes:
        network: digest of the training net's work; see work_digest.
        solver: the settings that change the work of an iteration, by name: engine, type, iter_size.
        ranks: of each rank.
    """

    network: str
    solver: Mapping[str, str | int]
    ranks: tuple[RankFacts, ...]


@dataclass(frozen=True)
class RankSpeed:
    """What was measured on a rank: the time of an iteration by the number of its samples, and the largest batch."""

    points: Mapping[int, Estimate]
    cap: int

    @property
    def function(self) -> SpeedFunction:
        weights = {size: point.weight for size, point in self.points.items()}
        return SpeedFunction.fitted(((size, point.seconds) for size, point in self.points.items()), self.cap, weights)


@dataclass(frozen=True)
class Profile:
    """The measured speeds of all ranks.

    Attributes:
        facts: of the run that was measured.
        speeds: of each rank.
        batch: the samples of a batch, of all ranks together, that they were measured for.
        name: the net's name.
        bpt: the version of bpt that measured.
    """

    facts: Facts
    speeds: tuple[RankSpeed, ...]
    batch: int
    name: str
    bpt: str


def check(profile: Profile, now: Facts, path: str, solver: str) -> None:
    """Refuse a profile that is not of this run.

    Args:
        now: of this run.
        path: where the profile was read from, and
        solver: the path of the solver, for the message.

    Raises:
        FileError: it says what differs, and how to measure again.
    """
    differences = list(_differences(profile.facts, now))
    if not differences:
        return
    more = len(differences) - SHOWN
    words = "; ".join(differences[:SHOWN]) + (f"; and {more} more differences" if more > 0 else "")
    raise FileError(path, f"was not measured for this run: {words}. {remedy(path, solver, len(now.ranks))}")


def remedy(path: str, solver: str, ranks: int) -> str:
    """How to make the profile at ``path``."""
    command = f"mpirun -n {ranks} … bpt time --solver {solver} --profile {path}"
    return f"Measure on these hosts, with the same --set: {command}"


def _differences(then: Facts, now: Facts) -> Iterator[str]:
    if then.network != now.network:
        yield "it is of another network"
    for name in {**then.solver, **now.solver}:
        before, after = then.solver.get(name, "not set"), now.solver.get(name, "not set")
        if before != after:
            yield f"{name} was {before}, now {after}"
    if len(then.ranks) != len(now.ranks):
        yield f"it is of {len(then.ranks)} ranks, now there are {len(now.ranks)}"
        return
    for number, (rank, today) in enumerate(zip(then.ranks, now.ranks, strict=True)):
        changes = []
        if rank.host != today.host:
            changes.append(f"ran on host {rank.host}, now {today.host}")
        if rank.device != today.device:
            changes.append(f"computed on {rank.device}, now {today.device}")
        if rank.threads != today.threads:
            changes.append(f"had threads {rank.threads}, now {today.threads}")
        if changes:
            yield f"rank {number} {', '.join(changes)}"


def static_from(profile: Profile, ranks: Sequence[int] | None = None) -> Static:
    """STATIC balance by the speeds in ``profile``.

    Args:
        ranks: those that share the batch, by their number in the profile; by default all.
    """
    speeds = profile.speeds if ranks is None else [profile.speeds[rank] for rank in ranks]
    return Static([speed.function for speed in speeds])
