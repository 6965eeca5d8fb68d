"""A state by itself: copied, gathered from ranks, divided over them."""

from __future__ import annotations

import torch

from bpt.graph.part import Part
from bpt.system.comm.base import Communicator
from bpt.train.state.train_state import TrainState
from tests.support.doubles.thread_ranks import run_ranks
from tests.support.golden_cases import graph_of
from tests.support.small_states import NET

SHAPES = {("ip1", 0): (4, 3), ("ip1", 1): (4,), ("b/ip2", 0): (2, 4), ("b/ip2", 1): (2,)}


def whole(dtype: torch.dtype) -> TrainState:
    """A state with a third in it, which is another number in another precision."""
    weights = {
        blob: torch.full(shape, number + 1 / 3, dtype=dtype) for number, (blob, shape) in enumerate(SHAPES.items())
    }
    return TrainState(
        3, 5, weights, {blob: (value + 1, value + 2) for blob, value in weights.items()}, {("train", "in"): 6}
    )


def test_gathered_of_ranks_of_which_the_first_holds_no_parameters() -> None:
    graph, state = graph_of(NET), whole(torch.float64)
    parts = [Part(frozenset({0})), Part(frozenset({1, 2}))]

    def gather(comm: Communicator) -> TrainState | None:
        own = state.divided(graph, parts[comm.rank])
        return own.gathered(graph, comm, parts, torch.float64)

    found, nothing = run_ranks(2, gather)
    assert found is not None and nothing is None
    assert (found.iteration, found.seed, found.positions) == (3, 5, {("train", "in"): 6})
    for blob, value in state.weights.items():
        assert found.weights[blob].dtype == torch.float64
        assert torch.equal(found.weights[blob], value)
        assert [*map(torch.equal, found.moments[blob], state.moments[blob])] == [True, True]


def test_a_copy_has_its_own_memory() -> None:
    state = whole(torch.float32)
    copied = state.copy()
    for value in (*state.weights.values(), *(moment for moments in state.moments.values() for moment in moments)):
        value.zero_()
    for number, blob in enumerate(SHAPES):
        assert copied.weights[blob].unique().tolist() == [torch.tensor(number + 1 / 3).item()]
        assert all(moment.any() for moment in copied.moments[blob])
