"""Profiles as JSON files."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any, NoReturn

from bpt.balance.precision import Estimate
from bpt.balance.profile import Facts, Profile, RankFacts, RankSpeed
from bpt.errors import FileError
from bpt.proto.atomic import atomic_file

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
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
    except OSError as error:
        raise FileError(path, f"cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise FileError(path, "is not a profile: it is not text") from None
    try:
        content = json.loads(text)
    except json.JSONDecodeError as error:
        raise FileError(f"{path}:{error.lineno}:{error.colno}", f"is not a profile: {error.msg}") from None
    except RecursionError:
        raise FileError(path, "is not a profile: it is nested too deep") from None
    return _from_json(_Place(path, "", content))


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


def _from_json(top: _Place) -> Profile:
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


def _points(points: _Place) -> Iterator[tuple[int, Estimate]]:
    seen: set[int] = set()
    for point in points.entries():
        size = point["batch"].integer(least=1)
        if size in seen:
            point["batch"].refuse(f"is {size}, as in another point")
        seen.add(size)
        width = point["half_width"]
        half_width = math.inf if width.value is None else width.seconds()
        yield size, Estimate(point["seconds"].seconds(zero=False), half_width, point["repeats"].integer(least=1))


class _Place:
    """A value in a JSON file, and the way to it: ``ranks[1].points[0].seconds``."""

    def __init__(self, path: str, way: str, value: Any) -> None:
        self.path = path
        self.way = way
        self.value = value

    def refuse(self, message: str) -> NoReturn:
        raise FileError(self.path, f"{self.way or 'the file'} {message}")

    def __getitem__(self, name: str) -> _Place:
        if not isinstance(self.value, dict):
            self.refuse("must be an object in braces")
        way = f"{self.way}.{name}" if self.way else name
        if name not in self.value:
            raise FileError(self.path, f"is not a whole profile: {way} is missing")
        return _Place(self.path, way, self.value[name])

    def entries(self) -> list[_Place]:
        """The entries of a list that is not empty."""
        if not isinstance(self.value, list) or not self.value:
            self.refuse("must be a list with at least one entry")
        return [_Place(self.path, f"{self.way}[{index}]", value) for index, value in enumerate(self.value)]

    def integer(self, least: int) -> int:
        if not isinstance(self.value, int) or isinstance(self.value, bool) or self.value < least:
            self.refuse(f"must be a whole number of at least {least}, found {self._shown}")
        return self.value

    def seconds(self, zero: bool = True) -> float:
        """A number of at least 0, or above it."""
        value = self.value
        number = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < math.inf
        if not number or (not value and not zero):
            self.refuse(f"must be a number {'of at least' if zero else 'above'} 0, found {self._shown}")
        return float(value)

    def text(self) -> str:
        if not isinstance(self.value, str):
            self.refuse(f"must be a text, found {self._shown}")
        return self.value

    def settings(self) -> dict[str, str | int]:
        """An object of texts and whole numbers."""
        if not isinstance(self.value, dict):
            self.refuse("must be an object in braces")
        for name, value in self.value.items():
            if not isinstance(value, str | int):
                _Place(self.path, f"{self.way}.{name}", value).refuse("must be a text or a whole number")
        return self.value

    @property
    def _shown(self) -> str:
        return json.dumps(self.value)[:40]
