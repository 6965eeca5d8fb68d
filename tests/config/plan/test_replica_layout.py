"""ReplicaLayout: places by arithmetic, and the text that lists replicas."""

from __future__ import annotations

import pytest

from bpt.config.plan.chosen import chosen_of, text_of, with_chosen
from bpt.config.plan.replica_layout import ReplicaLayout
from tests.support.training import solver_of

UNLIKE = ReplicaLayout((1, 3, 1, 2))  # ranks 0 | 1 2 3 | 4 | 5 6


@pytest.mark.parametrize(
    ("layout", "places", "text"),
    [
        (
            UNLIKE,
            [(0, 0, 0), (1, 0, 0), (1, 1, 0), (1, 2, 0), (2, 0, 0), (3, 0, 0), (3, 1, 0)],
            "7 ranks = 1 replica + 1 replica × 3 stages + 1 replica + 1 replica × 2 stages",
        ),
        (
            ReplicaLayout.regular(8, 2, 2),
            [(r, s, k) for r in (0, 1) for s in (0, 1) for k in (0, 1)],
            "8 ranks = 2 replicas × 2 stages × 2 shards",
        ),
        (ReplicaLayout(), [(0, 0, 0)], "1 rank = 1 replica"),
    ],
)
def test_places(layout: ReplicaLayout, places: list[tuple[int, int, int]], text: str) -> None:
    assert [layout.place(rank) for rank in range(layout.size)] == places
    assert [layout.rank(*place) for place in places] == list(range(layout.size))
    assert str(layout) == text


def test_holders_have_a_rank_of_each_replica() -> None:
    """Kinds are 1, 2 and 3 stages; of the first, second and third the layer is on stage 0, 1 and 2."""
    assert UNLIKE.kinds == (1, 2, 3)
    assert UNLIKE.ranks_of((0, 1, 2)) == [0, 3, 4, 6]
    assert UNLIKE.ranks_of((0, 0, 0)) == [0, 1, 4, 5]


@pytest.mark.parametrize(
    ("lost", "left"), [([2], (1, 2, 1, 2)), ([0, 6], (3, 1, 1)), ([5, 6, 1, 2, 3], (1, 1)), ([0, 1, 2, 3, 4, 5], (1,))]
)
def test_only_replicas_of_lost_ranks_get_shorter(lost: list[int], left: tuple[int, ...]) -> None:
    assert UNLIKE.without(lost).stages == left


@pytest.mark.parametrize(
    ("text", "stages"),
    [
        ("replica { ranks: 1 } replica { ranks: 2 num_stages: 2 }", (1, 2)),
        ("replica { ranks: 3 } replica { ranks: 4 num_stages: 2 }", (1, 1, 1, 2, 2)),
        ("replica { } replica { num_stages: 3 }", (1, 3)),
    ],
)
def test_a_text_lists_replicas(text: str, stages: tuple[int, ...]) -> None:
    plan = solver_of(f"parallel_param {{ {text} }}")
    layout = plan.parallel_param.layout(1)
    assert (layout.stages, plan.parallel_param.depth, plan.parallel_param.is_unlike) == (stages, max(stages), True)
    again = solver_of("").with_layout(layout)
    assert again.parallel_param.layout(1) == layout
    assert solver_of(text_of(again)).parallel_param.layout(1) == layout
    assert with_chosen(solver_of(""), chosen_of(again.parallel_param)).parallel_param.layout(1) == layout
    regular = plan.with_layout(ReplicaLayout((2, 2))).parallel_param
    assert (regular.num_stages, regular.replica, regular.layout(4).stages) == (2, (), (2, 2))
