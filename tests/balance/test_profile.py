from __future__ import annotations

from dataclasses import replace

import pytest

from bpt.balance.profile import Facts, RankFacts, check, static_from
from bpt.balance.speed import SpeedFunction
from bpt.errors import FileError
from bpt.share import Share
from tests.balance.profiles import FACTS, PROFILE

A, B = FACTS.ranks
REMEDY = "Measure on these hosts, with the same --set: mpirun -n {} … bpt time --solver s.prototxt --profile speed.json"


def refusal(now: Facts) -> str:
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
        (replace(FACTS, ranks=(A, replace(B, threads=1))), "rank 1 had threads 2, now 1"),
        (
            replace(FACTS, ranks=(replace(A, device="cuda (H)"), B)),
            "rank 0 computed on cpu (Fast), now cuda (H)",
        ),
        (
            replace(FACTS, ranks=(B, A)),
            "rank 0 ran on host a, now b, computed on cpu (Fast), now cpu (Slow), had threads 4, now 2; "
            "rank 1 ran on host b, now a, computed on cpu (Slow), now cpu (Fast), had threads 2, now 4",
        ),
    ],
)
def test_what_differs_is_named_and_how_to_measure(now: Facts, difference: str) -> None:
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


def test_balance_of_some_of_the_ranks() -> None:
    assert static_from(PROFILE, [1]).functions == static_from(PROFILE).functions[1:]
