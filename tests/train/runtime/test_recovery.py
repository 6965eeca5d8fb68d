"""What ranks that are left send each other of a state: nothing where each has all of it, else numbers as they are."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest
import torch

from bpt.config.plan.resolve import read_plan
from bpt.graph.part import slice_bounds
from bpt.nn.net_graph import build_graph_of
from bpt.system.comm.base import Communicator
from bpt.system.events.totals import Totals
from bpt.train.runtime.recovery import PartRecord, StateCopies, recovered
from bpt.train.state.train_state import Blob, TrainState, blob_of
from tests.support.doubles.thread_ranks import run_ranks

pytestmark = pytest.mark.usefixtures("folder")


def record(iteration: int, value: float) -> PartRecord:
    """All weights and moments have this value; convolutions lie in memory as channels-last layouts have them."""
    graph = build_graph_of(read_plan("solver.prototxt").train)

    def full(shape: tuple[int, ...]) -> torch.Tensor:
        tensor = torch.full(shape, value, dtype=torch.float64)
        return tensor.contiguous(memory_format=torch.channels_last) if len(shape) == 4 else tensor

    weights = {blob_of(graph, param): full(param.shape) for param in graph.learnable}
    moments = {blob: (-tensor,) for blob, tensor in weights.items()}
    return PartRecord(TrainState(iteration, 3, weights, moments))


@pytest.mark.parametrize(
    ("iterations", "furthest", "sent"), [((5, 5, 5), (0, 1, 2), False), ((5, 6, 5), (1, 1, 1), True)]
)
def test_the_one_that_came_furthest_has_the_state(
    iterations: tuple[int, ...], furthest: tuple[int, ...], sent: bool
) -> None:
    """Each rank's values are told apart here: those that are level are equal in a run, and so are not sent."""
    graph = build_graph_of(read_plan("solver.prototxt").train)

    def run(comm: Communicator) -> None:
        with comm.events.into(Totals()) as totals:
            state = recovered(comm, graph, [record(iterations[comm.rank], 1.0 + comm.rank)])
        assert state is not None and state.iteration == max(iterations)
        for blob, value in state.weights.items():
            assert (value == 1.0 + furthest[comm.rank]).all() and value.shape == state.moments[blob][0].shape
            assert (state.moments[blob][0] == -1.0 - furthest[comm.rank]).all()
        assert any(key.method == "Bcast" for key in totals.take()) == sent

    run_ranks(3, run)


@pytest.mark.parametrize("lost", [None, 1])
def test_slices_are_joined_and_all_are_needed(lost: int | None) -> None:
    """Three ranks have a third of each blob, and of its moments; without that of one of them there is no state."""
    graph = build_graph_of(read_plan("solver.prototxt").train)

    def part(rank: int) -> PartRecord:
        whole = record(4, 1.0 + rank).state
        elements = {blob: slice_bounds(value.numel(), 3)[rank] for blob, value in whole.weights.items()}

        def own(value: torch.Tensor, blob: Blob) -> torch.Tensor:
            return value.reshape(-1)[slice(*elements[blob])]

        weights = {blob: own(value, blob) for blob, value in whole.weights.items()}
        moments = {blob: tuple(own(value, blob) for value in values) for blob, values in whole.moments.items()}
        return PartRecord(replace(whole, weights=weights, moments=moments), elements=elements)

    def run(comm: Communicator) -> None:
        state = recovered(comm, graph, [] if comm.rank == lost else [part(comm.rank)])
        assert (state is None) == (lost is not None)
        for blob, value in state.weights.items() if state else ():
            for rank, (start, stop) in enumerate(slice_bounds(value.numel(), 3)):
                assert (value.reshape(-1)[start:stop] == 1.0 + rank).all()
                assert (state.moments[blob][0].reshape(-1)[start:stop] == -1.0 - rank).all()  # type: ignore[union-attr]

    run_ranks(3, run)


def test_a_copy_is_the_other_ranks_state_as_it_was() -> None:
    def run(comm: Communicator) -> None:
        own = record(4, 1.0 + comm.rank)
        copies = StateCopies(comm.Dup(), 1)
        copies.take(own)
        for value in own.state.weights.values():
            value.zero_()
        mine, others = copies.records
        for each, rank in ((mine, comm.rank), (others, (comm.rank - 1) % 3)):
            assert each.state.iteration == 4
            for blob, value in each.state.weights.items():
                assert (value == 1.0 + rank).all() and (each.state.moments[blob][0] == -1.0 - rank).all()
        copies.close()

    run_ranks(3, run, hosts=["a", "b", "c"])


def test_what_copies_cost_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    """Weights and moments of every blob, each as large."""

    def run(comm: Communicator) -> int:
        own = record(4, 1.0)
        copies = StateCopies(comm.Dup(), 5)
        for _ in range(4):
            copies.take(own)
        copies.close()
        return 2 * sum(value.nbytes for value in own.state.weights.values())

    with caplog.at_level(logging.INFO, "bpt"):
        nbytes, *_ = run_ranks(2, run)
    (told,) = [message for message in caplog.messages if message.startswith("Copies")]
    assert f"a rank sends up to {nbytes / 1e6:.3g} MB to another every 5 iterations, in " in told
