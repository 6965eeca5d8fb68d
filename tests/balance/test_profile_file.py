from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bpt.balance.profile_file import read_profile, write_profile
from bpt.errors import FileError, WriteError
from tests.balance.profiles import PROFILE

CONTENT: dict[str, Any] = {
    "format": 1,
    "bpt": "0.1.0",
    "name": "small",
    "network": "0123abcd",
    "solver": {"engine": "AUTO", "type": "SGD", "iter_size": 1},
    "batch": 8,
    "ranks": [
        {
            "rank": 0,
            "host": "a",
            "device": "cpu (Fast)",
            "threads": 4,
            "cap": 100,
            "points": [
                {"batch": 1, "seconds": 0.1, "half_width": 0.001, "repeats": 5},
                {"batch": 8, "seconds": 0.8, "half_width": None, "repeats": 1},
            ],
        },
        {
            "rank": 1,
            "host": "b",
            "device": "cpu (Slow)",
            "threads": 2,
            "cap": 6,
            "points": [{"batch": 1, "seconds": 0.3, "half_width": 0.0, "repeats": 7}],
        },
    ],
}


def test_what_is_written(tmp_path: Path) -> None:
    path = tmp_path / "speed.json"
    write_profile(PROFILE, str(path))
    assert json.loads(path.read_text()) == CONTENT
    assert [entry.name for entry in tmp_path.iterdir()] == ["speed.json"]


def test_what_is_read(tmp_path: Path) -> None:
    path = tmp_path / "speed.json"
    path.write_text(json.dumps(CONTENT))
    assert read_profile(str(path)) == PROFILE


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(WriteError, match="there is no folder"):
        write_profile(PROFILE, str(tmp_path / "no" / "speed.json"))


def complaint(path: Path, content: object = None, text: str | bytes = "") -> str:
    if isinstance(text, bytes):
        path.write_bytes(text)
    else:
        path.write_text(text if content is None else json.dumps(content))
    with pytest.raises(FileError) as caught:
        read_profile(str(path))
    return str(caught.value).removeprefix(str(path))


def changed(*way: str | int, to: object) -> Any:
    """CONTENT with another value at ``way``."""
    copy = json.loads(json.dumps(CONTENT))
    place = copy
    for step in way[:-1]:
        place = place[step]
    place[way[-1]] = to
    return copy


def without(*way: str | int) -> Any:
    copy = json.loads(json.dumps(CONTENT))
    place = copy
    for step in way[:-1]:
        place = place[step]
    del place[way[-1]]
    return copy


def test_missing(tmp_path: Path) -> None:
    with pytest.raises(FileError, match=r"speed.json: cannot be read: No such file or directory"):
        read_profile(str(tmp_path / "speed.json"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"format": 1,\n "bpt" 2}', ":2:8: is not a profile: Expecting ':' delimiter"),
        ("", ":1:1: is not a profile: Expecting value"),
        (b"\xff\xfe", ": is not a profile: it is not text"),
        ("[" * 100_000, ": is not a profile: it is nested too deep"),
        ("[]", ": the file must be an object in braces"),
        ("{}", ": is not a whole profile: format is missing"),
    ],
)
def test_not_a_profile(tmp_path: Path, text: str | bytes, message: str) -> None:
    assert complaint(tmp_path / "speed.json", text=text) == message


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (changed("format", to=2), "format is 2, but this bpt reads profiles of format 1; measure again"),
        (changed("format", to="x"), 'format must be a whole number of at least 0, found "x"'),
        (without("solver"), "is not a whole profile: solver is missing"),
        (without("ranks", 1, "points", 0, "seconds"), "is not a whole profile: ranks[1].points[0].seconds is missing"),
        (changed("ranks", to=[]), "ranks must be a list with at least one entry"),
        (changed("ranks", to=7), "ranks must be a list with at least one entry"),
        (changed("ranks", 0, to=7), "ranks[0] must be an object in braces"),
        (changed("ranks", 1, "rank", to=0), "ranks[1].rank must be 1"),
        (changed("ranks", 0, "host", to=3), "ranks[0].host must be a text, found 3"),
        (changed("ranks", 0, "threads", to=0), "ranks[0].threads must be a whole number of at least 1, found 0"),
        (changed("ranks", 0, "cap", to=1.5), "ranks[0].cap must be a whole number of at least 0, found 1.5"),
        (changed("ranks", 0, "cap", to=True), "ranks[0].cap must be a whole number of at least 0, found true"),
        (
            changed("ranks", 0, "points", 1, "batch", to=1),
            "ranks[0].points[1].batch is 1, as in another point",
        ),
        (
            changed("ranks", 0, "points", 1, "seconds", to=0),
            "ranks[0].points[1].seconds must be a number above 0, found 0",
        ),
        (
            changed("ranks", 0, "points", 1, "seconds", to=float("nan")),
            "ranks[0].points[1].seconds must be a number above 0, found NaN",
        ),
        (
            changed("ranks", 0, "points", 0, "half_width", to=-1),
            "ranks[0].points[0].half_width must be a number of at least 0, found -1",
        ),
        (changed("solver", to=3), "solver must be an object in braces"),
        (changed("solver", "engine", to=[1]), "solver.engine must be a text or a whole number"),
    ],
)
def test_damaged(tmp_path: Path, content: object, message: str) -> None:
    assert complaint(tmp_path / "speed.json", content) == f": {message}"
