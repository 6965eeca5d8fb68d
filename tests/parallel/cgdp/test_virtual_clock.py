"""The virtual clock: by hand, against the cost model, and with ranks that are not alike."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bpt.engine.synchronous import synchronous
from bpt.parallel.cgdp.chunks import chunks
from bpt.parallel.cgdp.cost_model import (
    ChunkCosts,
    TrainedLayerCost,
    backward_time,
    computing_time,
    original_backward_time,
    original_overhead,
    serial_backward_time,
    synchronisation_time,
)
from tests.parallel.cgdp.chunk_clock import SimulatedEvent, SimulatedTrace, simulate
from tests.parallel.cgdp.made_costs import THREE, costs_and_cut, hidden
from tests.support.paper import alexnet

Cut = tuple[int, ...]


def run(ranks: list[ChunkCosts], lengths: Cut, hosts: list[int] | None = None) -> SimulatedTrace:
    return simulate(synchronous(len(lengths)), ranks, lengths, hosts)


def test_by_hand() -> None:
    """The queues of tests/parallel/cgdp/test_cost_model.py, one entry a line."""
    trace = run([THREE], (1, 1, 1))
    assert trace.events == [
        SimulatedEvent(0, "default", "B2", 0.0, 2.0),
        SimulatedEvent(0, "default", "X2 as", 2.0, 2.5),
        SimulatedEvent(0, "D2H", "X2 D2H", 2.5, 5.5),
        SimulatedEvent(0, "host", "X2 host", 5.5, 6.5),
        SimulatedEvent(0, "H2D", "X2 H2D", 6.5, 8.5),
        SimulatedEvent(0, "default", "B1", 2.5, 3.5),
        SimulatedEvent(0, "default", "X1 as", 3.5, 4.0),
        SimulatedEvent(0, "D2H", "X1 D2H", 5.5, 6.5),
        SimulatedEvent(0, "host", "X1 host", 6.5, 7.5),
        SimulatedEvent(0, "H2D", "X1 H2D", 8.5, 9.5),
        SimulatedEvent(0, "default", "B0", 4.0, 8.0),
        SimulatedEvent(0, "default", "X0 as", 8.0, 8.5),
        SimulatedEvent(0, "D2H", "X0 D2H", 8.5, 9.0),
        SimulatedEvent(0, "host", "X0 host", 9.0, 9.25),
        SimulatedEvent(0, "H2D", "X0 H2D", 9.5, 9.75),
        SimulatedEvent(0, "default", "W", 8.5, 9.75),
    ]
    assert trace.time == 9.75
    assert trace.exposed == [1.25]


def test_original_by_hand() -> None:
    """OrigDP: backward to 7, then the exchange of one layer after the other on the same stream, 10 in all."""
    trace = simulate(synchronous(3, overlap=False), [THREE], (1, 1, 1), one_stream=True)
    assert [(event.label, event.start) for event in trace.events] == [
        *[("B2", 0.0), ("B1", 2.0), ("B0", 3.0)],
        *[("X2 D2H", 7.0), ("X2 host", 10.0), ("X2 H2D", 11.0)],
        *[("X1 D2H", 13.0), ("X1 host", 14.0), ("X1 H2D", 15.0)],
        *[("X0 D2H", 16.0), ("X0 host", 16.5), ("X0 H2D", 16.75)],
        ("W", 17.0),
    ]
    assert {event.stream for event in trace.events} == {"default"}
    assert trace.time == original_backward_time(THREE) == 17
    assert trace.exposed == [original_overhead(THREE)] == [10]


def test_ranks_wait_for_the_slowest() -> None:
    """Rank 1 computes at half the speed; its copies are as fast.

    Rank 0: backward ends at 2 and 3; copies to the host last from 2 to 3 and from 3 to 4. Rank 1: at 4 and 6; from 4
    to 5 and from 6 to 7. Sums (1 each) start at 5 and 7, the way back (1 each) at 6 and 8, for both ranks alike.
    """
    fast = ChunkCosts(tuple(TrainedLayerCost(name, 1, bp, 1, 1, 1) for name, bp in (("b", 2.0), ("a", 1.0))))
    trace = run([fast, fast.scaled(backward=2)], (1, 1))
    spans = {(event.rank, event.label): (event.start, event.end) for event in trace.events}
    assert [spans[rank, label] for rank in (0, 1) for label in ("X1 D2H", "X0 D2H")] == [(2, 3), (3, 4), (4, 5), (6, 7)]
    for rank in (0, 1):
        assert [spans[rank, label] for label in ("X1 host", "X0 host")] == [(5, 6), (7, 8)]
        assert [spans[rank, label] for label in ("X1 H2D", "X0 H2D")] == [(6, 7), (8, 9)]
    assert spans[0, "W"] == (3, 9)
    assert spans[1, "W"] == (6, 9)
    assert trace.exposed == [6, 3]
    assert trace.ends == [9, 9]


def test_hosts_sum_alone_and_reduce_together() -> None:
    """Ranks 0 and 1 share a host and end backward at 1; rank 2 on another host at 3. Copies and sums take 1 each, the
    reduction 2: the first host has its sum at 3, the second at 5; both reduce from 5 to 7."""
    quick = ChunkCosts((TrainedLayerCost("a", 1, bp=1, d2h=1, accumulate=1, reduce=2, bc=1),))
    trace = run([quick, quick, quick.scaled(backward=3)], (1,), hosts=[0, 0, 1])
    ends = {(event.rank, event.stream): event.end for event in trace.events}
    assert [ends[rank, "host"] for rank in range(3)] == [3, 3, 5]
    assert [ends[rank, "network"] for rank in range(3)] == [7, 7, 7]
    assert [ends[rank, "H2D"] for rank in range(3)] == [8, 8, 8]
    together = run([quick, quick, quick.scaled(backward=3)], (1,))
    ends = {(event.rank, event.stream): event.end for event in together.events}
    assert [ends[rank, "host"] for rank in range(3)] == [5, 5, 5]


def test_the_way_back_needs_the_slowest_slice() -> None:
    """Of two hosts, one takes 1 to reduce and the other 4; both from 3 to 4 or 7, and the sum is whole at 7."""
    quick, slow = (
        ChunkCosts((TrainedLayerCost("a", 1, bp=1, d2h=1, accumulate=1, reduce=time, bc=1),)) for time in (1, 4)
    )
    trace = run([quick, slow], (1,), hosts=[0, 1])
    ends = {(event.rank, event.stream): event.end for event in trace.events}
    assert [ends[rank, "network"] for rank in range(2)] == [4, 7]
    assert trace.ends == [8, 8]


def test_gradients_that_add_up_are_exchanged_once() -> None:
    """iter_size 2: backward twice (14), with the exchange under the second pass only."""
    trace = simulate(synchronous(3, iter_size=2), [THREE], (1, 1, 1))
    assert trace.time == 7 + 9.75
    assert trace.exposed == [1.25]


def check_fifo(trace: SimulatedTrace) -> None:
    last: dict[tuple[int, str], float] = {}
    for event in trace.events:
        assert last.get((event.rank, event.stream), 0.0) <= event.start <= event.end
        last[event.rank, event.stream] = event.end


@settings(deadline=None, max_examples=50)
@given(costs_and_cut(), st.lists(st.integers(0, 2), min_size=1, max_size=4))
def test_equal_ranks_are_the_queues_of_the_model(example: tuple[ChunkCosts, Cut], hosts: list[int]) -> None:
    costs, lengths = example
    trace = run([costs] * len(hosts), lengths, hosts)
    check_fifo(trace)
    predicted = serial_backward_time(costs, lengths)
    assert trace.ends == pytest.approx([predicted] * len(hosts), rel=1e-9, abs=1e-12)
    assert backward_time(costs, lengths) <= trace.time * (1 + 1e-9)  # Eq. 1
    exposed = predicted - computing_time(costs) - synchronisation_time(costs, lengths)
    assert trace.exposed == pytest.approx([exposed] * len(hosts), rel=1e-9, abs=1e-9)
    waits = [event.end - event.start for event in trace.events if event.label == "W"]
    assert waits == pytest.approx(trace.exposed, rel=1e-9, abs=1e-9)


@settings(deadline=None, max_examples=50)
@given(hidden(), st.integers(1, 3))
def test_copies_under_backward_expose_the_last_segment_alone(example: tuple[ChunkCosts, Cut], ranks: int) -> None:
    costs, lengths = example
    trace = run([costs] * ranks, lengths)
    *_, last = costs.chunked(lengths)
    assert trace.exposed == pytest.approx([last.aa + last.bc] * ranks, rel=1e-9, abs=1e-9)
    assert trace.time == pytest.approx(backward_time(costs, lengths), rel=1e-9)  # Eq. 1: predicted is simulated


@settings(deadline=None, max_examples=50)
@given(costs_and_cut(), st.integers(1, 3))
def test_original_is_the_model_s(example: tuple[ChunkCosts, Cut], ranks: int) -> None:
    costs, lengths = example
    trace = simulate(synchronous(len(lengths), overlap=False), [costs] * ranks, lengths, one_stream=True)
    check_fifo(trace)
    assert trace.ends == pytest.approx([original_backward_time(costs)] * ranks, rel=1e-9)
    assert trace.exposed == pytest.approx([original_overhead(costs)] * ranks, rel=1e-9, abs=1e-9)


def test_original_instructions() -> None:
    assert " ".join(map(str, synchronous(2, overlap=False))) == "F0 F1 B1 B0 X1 X0 W U"


def test_alexnet_of_the_paper() -> None:
    """Four GPUs, Tables 2 and 3: 39 µs of layer 1 are exposed, of 47 ms."""
    costs = alexnet()
    trace = run([costs] * 4, chunks(8, 1))
    assert trace.exposed == pytest.approx([39e-6] * 4)
    assert trace.time == pytest.approx(backward_time(costs, chunks(8, 1)))
    late = simulate(synchronous(8, overlap=False), [costs] * 4, chunks(8, 1), one_stream=True)
    assert late.exposed == pytest.approx([0.047225] * 4)
