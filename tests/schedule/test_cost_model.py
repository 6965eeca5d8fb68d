"""The cost model (CGDP, section 3.2): by hand, by laws, and with the paper's numbers."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from bpt.schedule.chunks import chunks
from bpt.schedule.cost_model import (
    Costs,
    LayerCost,
    backward_time,
    computing_time,
    hidden_share,
    original_backward_time,
    original_overhead,
    overhead,
    serial_backward_time,
    simplified_overhead,
    synchronisation_time,
    total_times,
)
from tests.schedule.made_costs import THREE, costs_and_cut, hidden
from tests.schedule.paper import BACKWARD_CGDP, OVERHEAD_ORIGDP, alexnet

Cut = tuple[int, ...]


@pytest.mark.parametrize(
    ("lengths", "times", "serial"),
    [
        # Computed at 2.5, 4.0 and 8.5; then 6, 3 and 1 of exchange. In the queues: D2H ends at 5.5, 6.5 and 9; host at
        # 6.5, 7.5 and 9.25; H2D at 8.5, 9.5 (from 8.5 on) and 9.75 (from 9.5 on).
        ((1, 1, 1), [8.5, 7.0, 9.5], 9.75),
        # Computed at 3.5 and 8; then 9 and 1. D2H ends at 7.5 and 8.5, host at 9.5 and 9.75, H2D at 12.5 and 12.75.
        ((2, 1), [12.5, 9.0], 12.75),
        ((3,), [17.5], 17.5),  # computed at 7.5; then 10
    ],
)
def test_by_hand(lengths: Cut, times: list[float], serial: float) -> None:
    assert total_times(THREE, lengths) == times
    assert backward_time(THREE, lengths) == max(times)
    assert overhead(THREE, lengths) == max(times) - 7  # T_BP = 2 + 1 + 4
    assert serial_backward_time(THREE, lengths) == serial
    assert overhead(THREE, lengths, serial_backward_time) == serial - 7


def test_by_hand_in_total() -> None:
    assert computing_time(THREE) == 7
    assert original_overhead(THREE) == 10  # 6 + 3 + 1
    assert original_backward_time(THREE) == 17
    assert synchronisation_time(THREE, (2, 1)) == 1
    assert simplified_overhead(THREE, (1, 1, 1)) == 3 * 0.5 + 1  # Eq. 2
    assert simplified_overhead(THREE, (2, 1)) == 2 * 0.5 + 1
    assert simplified_overhead(THREE, (3,)) == 0.5 + 10
    assert hidden_share(THREE, (1, 1, 1)) == pytest.approx(0.9)  # 1 of 10 exposed: 9.5 - 7 - 1.5
    assert hidden_share(THREE, (1, 1, 1), serial_backward_time) == pytest.approx(0.875)
    assert hidden_share(THREE, (3,)) == 0


def test_synchronisation_grows_with_the_elements() -> None:
    costs = Costs(THREE.layers, per_chunk=0.5, per_element=0.25)
    assert [costs.as_(chunk.elements) for chunk in costs.chunked((1, 1, 1))] == [1.5, 1.0, 0.75]
    assert [costs.as_(chunk.elements) for chunk in costs.chunked((2, 1))] == [2.0, 0.75]
    assert total_times(costs, (2, 1)) == [3 + 2 + 9, 3 + 2 + 4 + 0.75 + 1]


def test_chunks_add_up() -> None:
    chunk, layer = THREE.chunked((2, 1))
    assert chunk == LayerCost("c..b", 6, bp=3, d2h=4, accumulate=2, bc=3)
    assert layer == THREE.layers[2]


def test_reduction_between_hosts_is_a_queue_of_its_own() -> None:
    layers = (
        LayerCost("b", 1, bp=1, d2h=1, accumulate=1, reduce=4, bc=1),
        LayerCost("a", 1, bp=1, d2h=1, accumulate=1, reduce=2, bc=1),
    )
    assert layers[0].aa == 6
    assert total_times(Costs(layers), (1, 1)) == [8, 7]
    assert serial_backward_time(Costs(layers), (1, 1)) == 10  # reductions end at 7 and 9
    assert original_backward_time(Costs(layers)) == 14


def test_nothing_to_exchange() -> None:
    assert backward_time(Costs(()), ()) == serial_backward_time(Costs(()), ()) == original_backward_time(Costs(())) == 0
    assert simplified_overhead(Costs(()), ()) == 0
    assert hidden_share(Costs((LayerCost("a", 0, 1, 0, 0, 0),)), (1,)) == 1


@pytest.mark.parametrize("lengths", [(1, 1), (2, 2), (0, 3), ()])
def test_a_cut_is_of_all_layers(lengths: Cut) -> None:
    with pytest.raises(AssertionError):
        backward_time(THREE, lengths)


def test_scaled() -> None:
    scaled = THREE.scaled(backward=2, synchronisation=4, exchange=0.5)
    assert scaled.layers[0] == LayerCost("c", 4, bp=4, d2h=1.5, accumulate=0.5, bc=1)
    assert scaled.per_chunk == 2
    assert original_backward_time(scaled) == 14 + 5


@settings(deadline=None, max_examples=50)
@given(costs_and_cut())
def test_queues_only_delay(example: tuple[Costs, Cut]) -> None:
    costs, lengths = example
    eq_1, serial = backward_time(costs, lengths), serial_backward_time(costs, lengths)
    at_most = original_backward_time(costs) + synchronisation_time(costs, lengths)
    assert eq_1 <= serial * (1 + 1e-12)
    assert serial <= at_most * (1 + 1e-12)
    assert 0 <= hidden_share(costs, lengths, serial_backward_time) <= hidden_share(costs, lengths) + 1e-9 <= 1 + 1e-9
    assert overhead(costs, lengths) >= simplified_overhead(costs, lengths) - 1e-9 * at_most  # Eq. 2 is the least


@settings(deadline=None, max_examples=50)
@given(hidden())
def test_equation_2_holds_where_all_but_the_last_chunk_is_hidden(example: tuple[Costs, Cut]) -> None:
    costs, lengths = example
    assert overhead(costs, lengths) == pytest.approx(simplified_overhead(costs, lengths), rel=1e-9, abs=1e-9)
    assert serial_backward_time(costs, lengths) == pytest.approx(backward_time(costs, lengths), rel=1e-9)


def test_alexnet_of_the_paper() -> None:
    """Tables 2 and 3: overhead falls from tens of milliseconds to that of layer 1, and of the synchronisations."""
    costs = alexnet()
    singles = chunks(8, 1)
    assert original_overhead(costs) == pytest.approx(0.047225)  # all of Table 3; Table 2 has 43 ms, on GPUs
    assert overhead(costs, singles) == pytest.approx(simplified_overhead(costs, singles))
    last = total_times(costs, singles)[-1]
    assert last == backward_time(costs, singles) == pytest.approx(BACKWARD_CGDP + 39e-6)  # conv1: 14 + 18 + 7 µs
    assert serial_backward_time(costs, singles) == pytest.approx(last)
    assert overhead(costs, singles) < 0.17 * OVERHEAD_ORIGDP
    assert hidden_share(costs, singles) > 0.999
    assert hidden_share(costs, chunks(8, 9)) == pytest.approx(0, abs=1e-12)  # one chunk hides nothing
