"""Runs that lose a rank at a communicator's call end as undisturbed ones: every place that calls, begin and end."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

import pytest

from tests.chaos.calls import Death, Place, check, places
from tests.chaos.losses import ALONE, COPIES
from tests.support.marks import slow
from tests.support.spread_runs import Saved, remove_snapshots, set_up, train

LARS = "local_lr_auto: true local_gw_ratio: 0.05"
BEST = 'snapshot_best: "accuracy"'
CHANGING = (LARS, BEST)  # the curve, or what is in states
VARIANTS: Mapping[str, tuple[int, tuple[str, ...]]] = {
    "LARS and best test": (
        3,
        (
            LARS,
            BEST,
        ),
    ),
    "RING": (3, ("parallel_param { exchange: RING }",)),
    "CGDP": (3, ("parallel_param { exchange: CGDP cgdp_param { chunk_size: 1 } }",)),
    "CGDP with LARS": (
        3,
        (
            "parallel_param { exchange: CGDP }",
            LARS,
        ),
    ),
    "TREE": (
        3,
        (
            "parallel_param { exchange: TREE }",
            COPIES,
        ),
    ),
    "min_ranks": (3, ("parallel_param { fault_param { min_ranks: 2 } }",)),
    "spares": (4, ("parallel_param { fault_param { spares: 1 } }",)),
    "shards": (
        2,
        (
            "parallel_param { num_shards: 2 }",
            COPIES,
        ),
    ),
    "stages": (
        2,
        (
            "parallel_param { num_stages: 2 pipeline_param { micro_batches: 1 } }",
            COPIES,
        ),
    ),
}
FIRST = "train/state/blob_gathering.py:write_together"  # not called by others than the first rank
KINDS = [
    ("Bcast", "parallel/exchange/base.py:broadcast", 1),
    ("Allreduce", "engine/status.py:agree", 2),
    ("Allreduce", "train/runtime/outputs.py:_combine", 4),
    ("allgather", "train/runtime/outputs.py:_combine", 1),
    ("Allgatherv", "train/runtime/outputs.py:_combine", 1),
    ("allgather", "train/runtime/outputs.py:whole", 3),
    ("allgather", "train/runtime/outputs.py:listed", 1),
    ("Allreduce", "train/runtime/outputs.py:total", 3),
    ("Allreduce", "train/runtime/batch_sharing.py:_total", 17),
    ("Allreduce", "engine/status.py:<lambda>", 4),
    ("allgather", "train/runtime/divergence.py:_first", 1),
    ("allgather", "train/state/exchange_memory.py:exchange_state_of", 1),
    ("bcast", FIRST, 1),
    ("bcast", "train/runtime/checkpoint.py:write", 1),
    ("allgather", "parallel/balance/load_balance.py:_log", 0),
    ("Agree", "train/runtime/healing.py:run_with_recovery", 0),
]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    set_up(tmp_path)


@cache
def expected(*solver: str) -> dict[int, Saved]:
    """Snapshots of the undisturbed run of one process, which are the same in any folder."""
    train(1, ALONE, *solver)
    saved = {iteration: Saved.read(iteration) for iteration in (3, 6, 9)}
    remove_snapshots()
    return saved


def test_every_place_that_calls_is_here() -> None:
    assert {place[:2] for place in places(3)[0]} - {("Allreduce", "base/worker_thread.py:_run")} == {
        (method, where) for method, where, _ in KINDS
    }


@pytest.mark.parametrize("ends", [False, True], ids=["begins", "ends"])
@pytest.mark.parametrize(
    ("rank", "kind"), [(0, kind) for kind in KINDS] + [slow(1, kind) for kind in KINDS if kind[1] != FIRST]
)
def test_a_rank_dies_in_each_kind_of_call(rank: int, kind: tuple[str, str, int], ends: bool) -> None:
    """A death at the last call once ended the job although all was done and written."""
    check((Death(rank, Place(*kind), ends),), expected(), 3)


@pytest.mark.slow
@pytest.mark.parametrize("variant", VARIANTS)
def test_variants(variant: str) -> None:
    """One death at each place that calls, of each rank."""
    ranks, overrides = VARIANTS[variant]
    saved = expected(*(each for each in overrides if each in CHANGING))
    seen = set()
    for rank, calls in places(ranks, *overrides).items():
        for number, place in enumerate(calls):
            kind = place[:2]
            if kind not in seen and number >= len(calls) // 8:
                seen.add(kind)
                check((Death(rank, place, ends=len(seen) % 2 == 0),), saved, ranks, *overrides)


@pytest.mark.parametrize(
    ("rank", "ends", "most"),
    [(0, True, 2), slow(0, False, 12), slow(0, True, 12), slow(2, False, 12), slow(2, True, 12)],
)
def test_a_rank_dies_while_the_others_heal(rank: int, ends: bool, most: int) -> None:
    """At each call from the agreement that healing begins with to the first one of training."""
    first = Death(1, Place("Allreduce", "train/runtime/batch_sharing.py:_total", 17))
    calls = places(3, deaths=(first,))[rank]
    healing = next(number for number, place in enumerate(calls) if place.method == "Agree")
    kinds: dict[tuple[str, str], Place] = {}
    for place in calls[healing:]:
        kinds.setdefault((place.method, place.where), place)
    assert {"Agree", "allgather"} <= {method for method, _ in kinds}
    for place in list(kinds.values())[:most]:
        check((first, Death(rank, place, ends)), expected(), 3)
