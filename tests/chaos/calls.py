"""Losses in calls: a rank dies as it comes to its n-th collective, or as it leaves it, wherever that call may be."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

from bpt.execute.executor import Executor
from tests.chaos.losses import ALONE, COPIES, SHARDS, STAGES, solve
from tests.doubles.meeting import Group
from tests.doubles.thread_ranks import Killed
from tests.solver.spread_runs import Saved, remove_snapshots, set_up, train

LARS = "clip_gradients: -1 larc: true larc_eta: 0.2"
BEST = 'snapshot_best: "accuracy" test_interval: 2'
SETTINGS: Mapping[str, tuple[int, str, tuple[str, ...]]] = {
    "ALLREDUCE": (3, "", ()),
    "TREE": (3, "", ("parallel_param { exchange: TREE }", COPIES)),
    "RING": (3, "", ("parallel_param { exchange: RING }",)),
    "CGDP, searching": (3, "", ("parallel_param { exchange: CGDP cgdp_param { step: 1 range: 1 interval: 1 } }",)),
    "DYNAMIC": (3, "", ("parallel_param { balance: DYNAMIC }",)),
    "LARS": (3, LARS, ()),
    "best": (3, BEST, ()),
    "min_ranks": (3, "", ("parallel_param { fault_param { min_ranks: 2 } }",)),
    "spares": (4, "", ("parallel_param { fault_param { spares: 1 } }",)),
    "2 stages": (4, "", (STAGES, COPIES)),
    "2 shards, LARS": (4, LARS, (SHARDS, COPIES)),
}
"""Ranks, what changes the curve, and what does not."""


class Death(NamedTuple):
    """A rank dies in its ``call``-th collective since training began or the first one died; or right behind it."""

    rank: int
    call: int
    behind: bool


class Deaths:
    """Counts the collectives of each rank, and lets ranks die in them."""

    def __init__(self, left: Sequence[Death] = ()) -> None:
        self.left = list(left)
        self.counts: dict[int, int] = {}
        self.lock = threading.Lock()
        self.begun = False

    def begin(self) -> None:
        """Count from now on."""
        self.begun = True

    @contextmanager
    def around(self, rank: int) -> Iterator[None]:
        """A collective of ``rank``, which may die in it."""
        with self.lock:
            number = self.counts[rank] = self.counts.get(rank, -1) + self.begun
            due = self.left[0] if self.left and self.begun else None
            dies = due is not None and due.rank == rank and number >= due.call
            if dies:
                self.left.pop(0)
                self.counts.clear()
        if dies and due and not due.behind:
            raise Killed
        yield
        if dies:
            raise Killed


@contextmanager
def injected(deaths: Deaths) -> Iterator[None]:
    """Ranks come by ``deaths`` with every collective, from the first iteration on."""
    together, execute = Group.together, Executor._execute

    @contextmanager
    def meeting(self: Group, rank: int, call: tuple[object, ...], value: Any) -> Iterator[list[Any]]:
        with deaths.around(self.members[rank]), together(self, rank, call, value) as values:
            yield values

    def executing(self: Executor, instruction: Any) -> None:
        deaths.begin()
        execute(self, instruction)

    with patch.object(Group, "together", meeting), patch.object(Executor, "_execute", executing):
        yield


def campaign(seed: int, first: int, runs: int) -> Iterator[tuple[int, str, Callable[[], None]]]:
    """Runs by number, of a setting, a rank and a call drawn by that seed, in the current folder; by default 200."""
    set_up(Path.cwd())
    expected: dict[str, dict[int, Saved]] = {}
    names = list(SETTINGS)
    for number in range(first, first + (runs or 200)):
        choice, name = random.Random(f"{seed} {number}"), names[number % len(names)]
        ranks, changes, _ = SETTINGS[name]
        if changes not in expected:
            train(1, ALONE, *filter(None, [changes]))
            expected[changes] = {iteration: Saved.read(iteration) for iteration in (3, 6, 9)}
            remove_snapshots()
        deaths = [Death(choice.randrange(ranks), choice.randrange(90), choice.random() < 0.5)]
        if choice.random() < 0.3 and ranks > 3 and name != "spares":  # another one, while the others heal
            deaths.append(Death((deaths[0].rank + 1) % ranks, choice.randrange(30), False))
        words = ", ".join(f"rank {each.rank} {'behind' if each.behind else 'in'} call {each.call}" for each in deaths)
        yield number, f"{name}: {words}", partial(check, name, deaths, expected[changes])


def check(name: str, deaths: Sequence[Death], expected: Mapping[int, Saved]) -> None:
    """That what is left after the deaths ends as an undisturbed run, in the current folder."""
    ranks, changes, overrides = SETTINGS[name]
    left = Deaths(deaths)
    with injected(left):
        ended = solve(ranks, *filter(None, [changes]), *overrides)
    assert [done for _, done in ended if done] and all(done in (0, 9) for _, done in ended), ended
    for iteration, saved in expected.items():
        found = Saved.read(iteration)
        if name == "DYNAMIC":  # the shares that it has come to are a part of its state
            found = replace(found, rest=saved.rest)
        found.check(saved, 1e-5)
    remove_snapshots()
    for file in Path().glob("small_best*"):
        file.unlink()
    assert not [path for path in Path().iterdir() if "tmp" in path.name], "half-written files are left"
