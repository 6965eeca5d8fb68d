"""Profiles as JSON files."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any

from bpt.balance.precision import Estimate
from bpt.balance.profile import Facts, Profile, RankFacts, RankSpeed
from bpt.proto.atomic import atomic_file
from bpt.proto.json_file import Place, read_json

FORMAT = 1


def write_profile(profile: Profile, path: str) -> None:
    """Write ``profile`` to the file at ``path``; it is there whole or not at all.

    Raises:
        WriteError: it could not be written.
    """
    text = json.dumps(_to_json(profile), indent=1, allow_nan=False) + "\n"
    with atomic_file(path) as file:
        file.write(text.encode())


def read_profile(path: str) -> Profile:
    """The profile in the file at ``path``.

    Raises:
        FileError: it is missing, of another format, or damaged; it says where.
    """
    return _from_json(read_json(path, "profile"))


def _to_json(profile: Profile) -> dict[str, Any]:
    facts = profile.facts
    return {
        "format": FORMAT,
        "bpt": profile.bpt,
        "name": profile.name,
        "network": facts.network,
        "solver": dict(facts.solver),
        "batch": profile.batch,
        "ranks": [
            {"rank": number, "host": rank.host, "device": rank.device, "threads": rank.threads, "cap": speed.cap}
            | {"points": [_point(size, point) for size, point in sorted(speed.points.items())]}
            for number, (rank, speed) in enumerate(zip(facts.ranks, profile.speeds, strict=True))
        ],
    }


def _point(size: int, point: Estimate) -> dict[str, Any]:
    half_width = point.half_width if math.isfinite(point.half_width) else None
    return {"batch": size, "seconds": point.seconds, "half_width": half_width, "repeats": point.repeats}


def _from_json(top: Place) -> Profile:
    number = top["format"].integer(least=0)
    if number != FORMAT:
        top["format"].refuse(f"is {number}, but this bpt reads profiles of format {FORMAT}; measure again")
    ranks, speeds = [], []
    for expected, rank in enumerate(top["ranks"].entries()):
        if rank["rank"].integer(least=0) != expected:
            rank["rank"].refuse(f"must be {expected}")
        ranks.append(RankFacts(rank["host"].text(), rank["device"].text(), rank["threads"].integer(least=1)))
        speeds.append(RankSpeed(dict(_points(rank["points"])), rank["cap"].integer(least=0)))
    facts = Facts(top["network"].text(), top["solver"].settings(), tuple(ranks))
    return Profile(facts, tuple(speeds), top["batch"].integer(least=1), top["name"].text(), top["bpt"].text())


def _points(points: Place) -> Iterator[tuple[int, Estimate]]:
    seen: set[int] = set()
    for point in points.entries():
        size = point["batch"].integer(least=1)
        if size in seen:
            point["batch"].refuse(f"is {size}, as in another point")
        seen.add(size)
        width = point["half_width"]
        half_width = math.inf if width.value is None else width.seconds()
        yield size, Estimate(point["seconds"].seconds(zero=False), half_width, point["repeats"].integer(least=1))
