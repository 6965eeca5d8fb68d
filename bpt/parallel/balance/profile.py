"""Profile: the measured speeds of the ranks of a run, whether they are those of another run, and its JSON file."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from google.protobuf.descriptor import FieldDescriptor

from bpt.base.errors import FileError
from bpt.base.log import plural
from bpt.base.user_files import JsonValue, read_json, write_json
from bpt.config.plan.replica_layout import ReplicaLayout
from bpt.config.proto import bpt_pb2 as pb
from bpt.config.proto.fields import without
from bpt.graph.layer_graph import LayerGraph, LayerNode
from bpt.parallel.balance.batch_shares import Static
from bpt.parallel.balance.divided_net import Division
from bpt.parallel.balance.iteration_time import IterationFunction, seconds_left
from bpt.parallel.balance.speed import Estimate, SpeedFunction

# Fields besides ``batch_size`` that hold a batch size or the place of a layer. None changes the work of a sample.
_IRRELEVANT = {"dummy_data_param": ("shape", "num"), "input_param": ("shape",), "parallel_param": ("stage",)}


def work_digest(graph: LayerGraph) -> str:
    """Return 32 hexadecimal digits that identify the work of a net's layers.

    Nets that differ in their batch size or in where their data lie have the same; the images' size is in.
    """
    content = hashlib.blake2b(digest_size=16)
    for node in graph.nodes:
        content.update(_relevant(node).SerializeToString(deterministic=True))
        content.update(repr([graph.edges[edge].shape[1:] for edge in node.tops]).encode())
    return content.hexdigest()


def _relevant(node: LayerNode) -> pb.LayerParameter:
    param = node.without_places()
    paths = (f"{message.name}.{name}" for message, name in _sizes_and_places(param))
    return without(param, *paths)


def _sizes_and_places(param: pb.LayerParameter) -> Iterator[tuple[FieldDescriptor, str]]:
    for entry, _ in param.ListFields():
        for name in _IRRELEVANT.get(entry.name, ("batch_size",)):
            if entry.message_type is not None and name in entry.message_type.fields_by_name:
                yield entry, name


SHOWN = 4  # differences that a message spells out
DIVISIONS = {"num_shards", "fc_param { scheme }"}  # in old profiles; a profile serves every division of its net


@dataclass(frozen=True)
class RankFacts:
    """The facts that a rank's speed depends on, besides the network."""

    host: str
    device: str  # with its model: "cpu (…)", "cuda (…)"
    threads: int

    @property
    def on_gpu(self) -> bool:
        """Whether the rank computes on a GPU, so that its speed does not depend on its threads."""
        return self.device.startswith("cuda")


@dataclass(frozen=True)
class SpeedFacts:
    """The facts that the speeds of a run depend on.

    Attributes:
        network: digest of the training net's work; see work_digest.
        solver: the settings that change the work of an iteration, by name: engine, type, iter_size.
        ranks: the facts of each rank.
    """

    network: str
    solver: Mapping[str, str | int]
    ranks: tuple[RankFacts, ...]


@dataclass(frozen=True)
class RankSpeed:
    """The measured speed of a rank.

    Attributes:
        points: the time of an iteration by its number of samples.
        cap: the largest batch that fits into memory.
        segments: seconds until the gradients of each segment are ready and until all is computed, and those of the
            update, by the number of samples; empty: only ``by: ITERATION`` measures them.
    """

    points: Mapping[int, Estimate]
    cap: int
    segments: Mapping[int, Sequence[float]] = field(default_factory=dict)

    @property
    def function(self) -> SpeedFunction:
        weights = {size: point.weight for size, point in self.points.items()}
        return SpeedFunction.fitted(((size, point.seconds) for size, point in self.points.items()), self.cap, weights)


@dataclass(frozen=True)
class Profile:
    """The measured speeds of all ranks.

    Attributes:
        facts: the facts of the measured run.
        speeds: the speed of each rank.
        batch: the samples of a batch of all ranks together for which they were measured.
        name: the net's name.
        bpt: the version of bpt that measured.
        exchanges: seconds of the exchange of each segment's gradients, in their order; empty like ``segments``.
    """

    facts: SpeedFacts
    speeds: tuple[RankSpeed, ...]
    batch: int
    name: str
    bpt: str
    exchanges: tuple[float, ...] = ()

    def of_ranks(self, ranks: Sequence[int]) -> Profile:
        """Return the profile of these ranks only, which are left of those that were measured."""
        if not all(rank < len(self.speeds) for rank in ranks):
            return self
        facts = replace(self.facts, ranks=tuple(self.facts.ranks[rank] for rank in ranks))
        return replace(self, facts=facts, speeds=tuple(self.speeds[rank] for rank in ranks))


def check(profile: Profile, now: SpeedFacts, path: str, solver: str) -> None:
    """Refuse a profile of another run. The run's division of its net, and its threads, may differ.

    Args:
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


def check_spares(profile: Profile, ranks: int, spares: int, path: str, solver: str) -> None:
    """Refuse a profile without the spare ranks of a run, since these may come to train.

    Raises:
        FileError: it says how to measure again.
    """
    if spares and ranks <= len(profile.speeds) < ranks + spares:
        raise FileError(
            path,
            f"is of {plural(len(profile.speeds), 'rank')}, and with spares: {spares} there are {ranks + spares}. "
            f"{remedy(path, solver, ranks + spares)}",
        )


def remedy(path: str, solver: str, ranks: int) -> str:
    """Return how to make the profile at ``path``."""
    command = f"mpirun -n {ranks} … bpt time --solver {solver} --profile {path}"
    return f"Measure on these hosts, with the same --set: {command}"


def _differences(then: SpeedFacts, now: SpeedFacts) -> Iterator[str]:
    if then.network != now.network:
        yield "it is of another network"
    for name in (name for name in {**then.solver, **now.solver} if name not in DIVISIONS):
        before, after = then.solver.get(name, "not set"), now.solver.get(name, "not set")
        if before != after:
            yield f"{name} was {before}, now {after}"
    if len(then.ranks) != len(now.ranks):
        yield f"it is of {plural(len(then.ranks), 'rank')}, now there are {len(now.ranks)}"
        return
    for number, (rank, today) in enumerate(zip(then.ranks, now.ranks, strict=True)):
        changes = []
        if rank.host != today.host:
            changes.append(f"ran on host {rank.host}, now {today.host}")
        if rank.device != today.device:
            changes.append(f"computed on {rank.device}, now {today.device}")
        if changes:
            yield f"rank {number} {', '.join(changes)}"


def static_from(
    profile: Profile, division: Division | None = None, now: SpeedFacts | None = None, by_iteration: bool = False
) -> Static:
    """Return the STATIC balance by the speeds in ``profile``.

    Args:
        division: how the run divides its net; by default each rank has all of it.
        now: the facts of the run. If it has other threads, times are assumed to be in inverse proportion to them.
        by_iteration: whether to make the iteration short, by the measured segments and exchanges.
    """
    division = division or Division(ReplicaLayout.regular(len(profile.speeds)))
    ranks = profile.facts.ranks
    factors = [
        1.0 if rank.on_gpu else rank.threads / today.threads
        for rank, today in zip(ranks, (now or profile.facts).ranks, strict=True)
    ]
    functions = [speed.function.scaled(factor) for speed, factor in zip(profile.speeds, factors, strict=True)]
    by = []
    if by_iteration:
        left = seconds_left(profile.exchanges)
        for speed, factor in zip(profile.speeds, factors, strict=True):
            scaled = {size: [time * factor for time in seconds] for size, seconds in speed.segments.items()}
            by.append(IterationFunction.fitted(scaled, left, speed.cap))
    names = [name_of(each, [ranks[rank].host for rank in each]) for each in division.share_ranks]
    return Static(division.functions(functions), names, division.group, division.split_part, by)


def name_of(ranks: Sequence[int], hosts: Sequence[str]) -> str:
    """Return the name of a participant that shares the batch: its rank (in a pipeline, ranks) and its hosts."""
    hosts = list(dict.fromkeys(hosts))
    return f"rank{'s' * (len(ranks) > 1)} {_listed(ranks)} (host{'s' * (len(hosts) > 1)} {_listed(hosts)})"


def _listed(words: Sequence[object]) -> str:
    return " and ".join(", ".join(map(str, part)) for part in (words[:-1], words[-1:]) if part)


def other_threads(profile: Profile, now: SpeedFacts) -> str:
    """Return in words which ranks have another number of threads ``now``; empty if none has."""
    words = [
        f"rank {number} (host {rank.host}) with {rank.threads}, now {today.threads}"
        for number, (rank, today) in enumerate(zip(profile.facts.ranks, now.ranks, strict=True))
        if rank.threads != today.threads and not rank.on_gpu
    ]
    more = len(words) - SHOWN
    return "; ".join(words[:SHOWN]) + (f"; and {more} more" if more > 0 else "")


FORMAT = 1


def write_profile(profile: Profile, path: str) -> None:
    """Write ``profile`` to the file at ``path``, completely or not at all.

    Raises:
        WriteError: it could not be written.
    """
    write_json(_to_json(profile), path)


def read_profile(path: str) -> Profile:
    """Return the profile in the file at ``path``.

    Raises:
        FileError: it is missing, of another format, or damaged; it says where.
    """
    return _from_json(read_json(path, "profile", FORMAT))


def _to_json(profile: Profile) -> dict[str, Any]:
    facts = profile.facts
    return {
        "format": FORMAT,
        "bpt": profile.bpt,
        "name": profile.name,
        "network": facts.network,
        "solver": dict(facts.solver),
        "batch": profile.batch,
        **({"exchanges": list(profile.exchanges)} if profile.exchanges else {}),
        "ranks": [
            {"rank": number, "host": rank.host, "device": rank.device, "threads": rank.threads, "cap": speed.cap}
            | {"points": [_point(size, point) for size, point in sorted(speed.points.items())]}
            | ({"segments": [_segments(*each) for each in sorted(speed.segments.items())]} if speed.segments else {})
            for number, (rank, speed) in enumerate(zip(facts.ranks, profile.speeds, strict=True))
        ],
    }


def _point(size: int, point: Estimate) -> dict[str, Any]:
    half_width = point.half_width if math.isfinite(point.half_width) else None
    return {"batch": size, "seconds": point.seconds, "half_width": half_width, "repeats": point.repeats}


def _segments(size: int, seconds: Sequence[float]) -> dict[str, Any]:
    return {"batch": size, "seconds": list(seconds)}


def _from_json(top: JsonValue) -> Profile:
    ranks, speeds = [], []
    for expected, rank in enumerate(top["ranks"].entries()):
        if rank["rank"].integer(least=0) != expected:
            rank["rank"].refuse(f"must be {expected}")
        ranks.append(RankFacts(rank["host"].text(), rank["device"].text(), rank["threads"].integer(least=1)))
        segments = {
            each["batch"].integer(least=1): tuple(seconds.seconds() for seconds in each["seconds"].entries())
            for each in rank.entries_of("segments")
        }
        speeds.append(RankSpeed(dict(_points(rank["points"])), rank["cap"].integer(least=0), segments))
    facts = SpeedFacts(top["network"].text(), top["solver"].settings(), tuple(ranks))
    exchanges = tuple(seconds.seconds() for seconds in top.entries_of("exchanges"))
    wrong = [
        len(seconds) for speed in speeds for seconds in speed.segments.values() if len(seconds) != len(exchanges) + 2
    ]
    if wrong or (exchanges and not all(speed.segments for speed in speeds)):
        top["ranks"].refuse(f"must have {len(exchanges) + 2} seconds in all of their segments, as there are exchanges")
    batch, name, version = top["batch"].integer(least=1), top["name"].text(), top["bpt"].text()
    return Profile(facts, tuple(speeds), batch, name, version, exchanges)


def _points(points: JsonValue) -> Iterator[tuple[int, Estimate]]:
    seen: set[int] = set()
    for point in points.entries():
        size = point["batch"].integer(least=1)
        if size in seen:
            point["batch"].refuse(f"is {size}, as in another point")
        seen.add(size)
        width = point["half_width"]
        half_width = math.inf if width.value is None else width.seconds()
        yield size, Estimate(point["seconds"].seconds(zero=False), half_width, point["repeats"].integer(least=1))
