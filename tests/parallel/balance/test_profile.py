"""Profiles, their files, and the digest of a net's work."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bpt.base.errors import FileError, UserError, WriteError
from bpt.config.plan.replica_layout import ReplicaLayout
from bpt.graph.share import Share
from bpt.parallel.balance.divided_net import Division
from bpt.parallel.balance.profile import (
    RankFacts,
    SpeedFacts,
    check,
    other_threads,
    read_profile,
    static_from,
    work_digest,
    write_profile,
)
from bpt.parallel.balance.speed import SpeedFunction
from tests.support.golden_cases import graph_of
from tests.support.profiles import FACTS, PROFILE

NET = """
name: "small"
layer { name: "data" type: "DummyData" top: "x" top: "y"
        dummy_data_param { shape { dim: 4 dim: 5 } shape { dim: 4 } } }
layer { name: "ip" type: "InnerProduct" bottom: "x" top: "ip" inner_product_param { num_output: 3 } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "y" top: "loss" }
"""


def digest(old: str = "", new: str = "") -> str:
    assert old in NET
    return work_digest(graph_of(NET.replace(old, new) if old else NET))


def test_the_batch_size_is_no_part_of_the_work() -> None:
    assert digest("dim: 4", "dim: 9") == digest()
    assert len(digest()) == 32


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("dim: 5", "dim: 6"),
        ("num_output: 3", "num_output: 4"),
        ('name: "ip" type', 'name: "ip" param { lr_mult: 0 } type'),
        ('layer { name: "loss"', 'layer { name: "relu" type: "ReLU" bottom: "ip" top: "ip" } layer { name: "loss"'),
    ],
)
def test_whatever_else_is(old: str, new: str) -> None:
    assert digest(old, new) != digest()


A, B = FACTS.ranks
REMEDY = "Measure on these hosts, with the same --set: mpirun -n {} … bpt time --solver s.prototxt --profile speed.json"


def refusal(now: SpeedFacts) -> str:
    with pytest.raises(FileError) as caught:
        check(PROFILE, now, "speed.json", "s.prototxt")
    return str(caught.value)


def test_a_profile_of_this_run() -> None:
    check(PROFILE, replace(FACTS, solver=dict(FACTS.solver)), "speed.json", "s.prototxt")


@pytest.mark.parametrize(
    ("now", "difference"),
    [
        (replace(FACTS, network="other"), "it is of another network"),
        (replace(FACTS, solver={**FACTS.solver, "engine": "CONTIGUOUS"}), "engine was AUTO, now CONTIGUOUS"),
        (replace(FACTS, solver={"engine": "AUTO", "type": "SGD"}), "iter_size was 1, now not set"),
        (replace(FACTS, ranks=(A, replace(B, host="c"))), "rank 1 ran on host b, now c"),
        (
            replace(FACTS, ranks=(replace(A, device="cuda (H)"), B)),
            "rank 0 computed on cpu (Fast), now cuda (H)",
        ),
        (
            replace(FACTS, ranks=(B, A)),
            "rank 0 ran on host a, now b, computed on cpu (Fast), now cpu (Slow); "
            "rank 1 ran on host b, now a, computed on cpu (Slow), now cpu (Fast)",
        ),
    ],
)
def test_what_differs_is_named_and_how_to_measure(now: SpeedFacts, difference: str) -> None:
    assert refusal(now) == f"speed.json: was not measured for this run: {difference}. {REMEDY.format(2)}"


def test_another_number_of_ranks() -> None:
    assert refusal(replace(FACTS, ranks=(A, B, B))) == (
        f"speed.json: was not measured for this run: it is of 2 ranks, now there are 3. {REMEDY.format(3)}"
    )


def test_of_many_differences_some_are_named() -> None:
    many = replace(PROFILE, facts=replace(FACTS, ranks=(A,) * 9), speeds=PROFILE.speeds[:1] * 9)
    with pytest.raises(FileError, match=r"rank 3 ran on host a, now z; and 5 more differences\. Measure"):
        check(many, replace(FACTS, ranks=(RankFacts("z", A.device, A.threads),) * 9), "p", "s")


def test_balance_by_the_measured_speeds() -> None:
    balance = static_from(PROFILE)
    assert balance.functions == (
        SpeedFunction((0, 1, 8), (0.0, 0.1, 0.8), 100),
        SpeedFunction((0, 1), (0.0, 0.3), 6),
    )
    assert balance.shares(8, 2) == (Share(0, 6, 8), Share(6, 2, 8))


def test_a_profile_serves_every_division_of_its_net() -> None:
    """That ranks were told to share layers stands in profiles of old; it never was in what was measured."""
    old = replace(FACTS, solver={**FACTS.solver, "num_shards": 2, "fc_param { scheme }": "PEER"})
    check(replace(PROFILE, facts=old), FACTS, "speed.json", "s.prototxt")


def test_other_threads_are_reckoned_with() -> None:
    now = replace(FACTS, ranks=(A, replace(B, threads=6)))
    check(PROFILE, now, "speed.json", "s.prototxt")
    assert other_threads(PROFILE, now) == "rank 1 (host b) with 2, now 6"
    assert other_threads(PROFILE, FACTS) == ""
    # 3 times as many threads: 0.1 s a sample in place of 0.3.
    assert static_from(PROFILE, now=now).functions[1] == SpeedFunction((0, 1), (0.0, pytest.approx(0.1)), 6)  # type: ignore[arg-type]


def test_threads_of_a_gpus_rank_do_not_count() -> None:
    gpu = replace(A, device="cuda (H)")
    profile = replace(PROFILE, facts=replace(FACTS, ranks=(gpu, B)))
    now = replace(FACTS, ranks=(replace(gpu, threads=1), B))
    assert other_threads(profile, now) == ""
    assert static_from(profile, now=now).functions == static_from(profile).functions


def test_remarks_name_ranks_and_hosts() -> None:
    assert static_from(PROFILE).remarks((Share(0, 9, 16), Share(9, 7, 16))) == [
        f"rank {rank} (host {host}): {share} samples are more than the {most} that were measured; their time is an "
        "extrapolation"
        for rank, host, share, most in ((0, "a", 9, 8), (1, "b", 7, 1))
    ]
    four = replace(PROFILE, facts=replace(FACTS, ranks=(A, B, B, A)), speeds=PROFILE.speeds * 2)
    assert static_from(four, Division(ReplicaLayout((2, 2)), [(0.5, 0.5)], [(0.0, 0.0)])).names == (
        "ranks 0 and 1 (hosts a and b)",
        "ranks 2 and 3 (hosts b and a)",
    )
    assert static_from(four, Division(ReplicaLayout((1, 1), 2), [(1.0,)], [(0.2,)], masters=True)).names == (
        "rank 0 (host a)",
        "rank 2 (host b)",
    )
    with pytest.raises(UserError, match=r"rank 0 \(host a\): 100, rank 1 \(host b\): 6, together 106"):
        static_from(PROFILE).shares(107, 2)


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
        (changed("format", to=2), "format is 2, but this bpt reads a profile of format 1; measure again"),
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
