"""Forecasts worked out by hand, and against the clock of one pipeline."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from bpt.forecast.forecast import STATUS, forecast
from bpt.placement.problem import Device, Link, problem_of
from bpt.plan.stage_placement import place
from bpt.predict.pipeline_clock import Clock
from bpt.schedule.cluster import Within
from tests.forecast.small import BYTES, TIMES, nodes, small


@pytest.mark.parametrize(
    ("overrides", "speeds", "seconds", "shares"),
    [
        ("", (2, 2), 2.0, (4, 4)),
        ("", (3, 1), 4.0, (4, 4)),  # the slower one takes a second a sample
        ("parallel_param { balance: DYNAMIC }", (3, 1), 2.0, (6, 2)),
        ("parallel_param { batch_scope: REPLICA }", (2, 2), 4.0, (8, 8)),
        ("iter_size: 3", (2, 2), 6.0, (4, 4)),
        ("", (1,), 8.0, (8,)),
    ],
)
def test_computing_alone(
    tmp_path: Path, overrides: str, speeds: tuple[float, ...], seconds: float, shares: tuple[int, ...]
) -> None:
    made = forecast(*small(tmp_path, overrides), nodes(*speeds))
    assert made.seconds == pytest.approx(seconds)
    assert made.shares == shares
    assert made.exposed == 0


@pytest.mark.parametrize(
    ("overrides", "exposed"),
    [
        ("", 1.0),  # the net is one segment, whose gradients are there when backward is over
        ("parallel_param { exchange: RING }", 1.0),  # two steps of half of it
        ("parallel_param { exchange: TREE }", 2.0),  # there, and the weights back
        # ip's 780 bytes leave while conv runs backward, for two thirds of a second: conv's 448 come after them.
        ("parallel_param { exchange: CGDP cgdp_param { chunk_size: 1 } }", 448 / BYTES),
    ],
)
def test_what_is_left_of_the_exchange(tmp_path: Path, overrides: str, exposed: float) -> None:
    """On links that take a second for all gradients; half of the batch takes two."""
    made = forecast(*small(tmp_path, overrides), nodes(2, 2, bandwidth=BYTES))
    assert made.exposed == pytest.approx(exposed)
    assert made.seconds == pytest.approx(2 + exposed)
    assert made.between == pytest.approx(2 * BYTES)


def test_a_codec_sends_less(tmp_path: Path) -> None:
    """2 bytes of 4, over links that take a second for all gradients; back along a tree come weights as they are."""
    half = "parallel_param { compression_param { codec: BF16 } }"
    made = forecast(*small(tmp_path, half), nodes(2, 2, bandwidth=BYTES))
    assert made.exposed == pytest.approx(0.5)
    assert made.between == pytest.approx(BYTES)
    tree = forecast(*small(tmp_path, half, "parallel_param { exchange: TREE }"), nodes(2, 2, bandwidth=BYTES))
    assert tree.exposed == pytest.approx(1.5)
    assert tree.between == pytest.approx(1.5 * BYTES)


@pytest.mark.parametrize(
    ("settings", "part"),
    [
        ("steps: 4", 2 / 4),  # weights and momentum, every fourth iteration
        ("steps: 4 momentum: KEEP", 1 / 4),
        ("steps: 5 momentum: RESET sum_within_hosts: true", 1 / 5),
    ],
)
def test_local_steps_by_iteration(tmp_path: Path, settings: str, part: float) -> None:
    text = f"parallel_param {{ exchange: LOCAL local_param {{ {settings} }} }}"
    made = forecast(*small(tmp_path, text), nodes(2, 2, bandwidth=BYTES))
    assert made.exposed == pytest.approx(part)
    assert made.between == pytest.approx(2 * part * BYTES)


def test_hosts_that_sum_within_and_average_between(tmp_path: Path) -> None:
    """Two hosts of two ranks, a second for all gradients on a host: 1 s there in each iteration, and a quarter of an
    average in two levels (there and back on a host, once between)."""
    text = "parallel_param { exchange: LOCAL local_param { steps: 4 momentum: KEEP sum_within_hosts: true } }"
    cluster = replace(nodes(4, 4, ranks=2, bandwidth=BYTES), within=Within(0.0, BYTES))
    made = forecast(*small(tmp_path, text), cluster)
    assert made.exposed == pytest.approx(1 + (2 + 1) / 4)
    assert made.between == pytest.approx(2 * BYTES / 4)
    assert made.within == pytest.approx(2 * 2 * BYTES + 2 * 2 * BYTES / 4)


def test_latency_and_what_all_must_know(tmp_path: Path) -> None:
    """Without gradients to speak of, it is the loss that all wait for: a message each way takes two latencies."""
    made = forecast(*small(tmp_path), nodes(2, 2, latency=0.25, bandwidth=1e9))
    assert made.seconds == pytest.approx(2 + 0.5 + BYTES / 1e9)
    assert STATUS < BYTES


def test_those_who_send_have_to_wake(tmp_path: Path) -> None:
    """Half a second, for the gradients as for the status; in the middle of backward it is hidden."""
    cluster = replace(nodes(2, 2, bandwidth=BYTES), waking=0.5)
    assert forecast(*small(tmp_path), cluster).seconds == pytest.approx(2 + 0.5 + 1)
    fast = replace(nodes(2, 2, bandwidth=BYTES * 1e9), waking=0.5)
    assert forecast(*small(tmp_path), fast).seconds == pytest.approx(2 + 0.5)
    # ip's 780 bytes begin half a second after conv's backward has begun, and conv's 448 come at once behind them.
    chunks = small(tmp_path, "parallel_param { exchange: CGDP cgdp_param { chunk_size: 1 } }")
    assert forecast(*chunks, cluster).exposed == pytest.approx(0.5 + 780 / BYTES + 448 / BYTES - 2 * 4 / 12)


def test_a_host_whose_cores_all_compute_hides_nothing(tmp_path: Path) -> None:
    """Two ranks on a node; with cores to spare chunks travel beside backward."""
    plan, costs = small(tmp_path, "parallel_param { exchange: CGDP cgdp_param { chunk_size: 1 } }")
    cluster = replace(nodes(2, ranks=2, cores=2), within=Within(0.0, BYTES))
    assert forecast(plan, costs, cluster).exposed == pytest.approx(1.0)
    cluster = replace(nodes(2, ranks=2, cores=4), within=Within(0.0, BYTES))
    made = forecast(plan, costs, cluster)
    assert made.exposed == pytest.approx(448 / BYTES)
    assert (made.within, made.between) == (2 * BYTES, 0)


@pytest.mark.parametrize("schedule", ["GPIPE", "ONE_F_ONE_B", "SEQUENTIAL"])
def test_a_pipeline_is_as_its_own_clock_has_it(tmp_path: Path, schedule: str) -> None:
    """One pipeline of two alike devices, as bpt plan plays it; and two replicas of it halve the batch."""
    overrides = f"parallel_param {{ num_stages: 2 pipeline_param {{ micro_batches: 4 schedule: {schedule} }} }}"
    plan, costs = small(tmp_path, overrides)
    param = plan.parallel_param.pipeline_param
    devices, link = (Device("a"), Device("b")), Link(0.5, 1000.0)
    _, placement = place(plan, costs.graph)

    def clock(replicas: int) -> float:
        problem = problem_of(costs.graph, devices, link, param, plan.precision, TIMES, replicas=replicas)
        return Clock(costs.graph, problem)(placement)

    cluster = nodes(8 / 12, 8 / 12, latency=0.25, bandwidth=1000.0)
    status = 0.5 + STATUS / 1000
    assert forecast(plan, costs, cluster).seconds == pytest.approx(clock(1) + status)
    four = nodes(*[8 / 12] * 4, latency=0.25, bandwidth=1000.0)
    made = forecast(plan, costs, four)
    assert made.seconds >= clock(2)
    assert made.seconds == pytest.approx(clock(2) + made.exposed)


def test_what_a_rank_holds(tmp_path: Path) -> None:
    """Values, gradients and a history of 1,228 bytes; half of x, y, conv, ip and the loss."""
    made = forecast(*small(tmp_path), nodes(2, 2, memory=6000))
    blobs = 4 * (8 * 3 * 6 * 6 + 8 + 8 * 4 * 4 * 4 + 8 * 3 + 1)
    assert made.held.tolist() == pytest.approx([3 * BYTES + blobs / 2] * 2)
    assert made.fits == (3 * BYTES + blobs / 2 <= 6000)


def test_shards_hold_and_send_slices(tmp_path: Path) -> None:
    """Peers: conv's 448 bytes are summed over both; of ip each has half, which nobody else has."""
    plan, costs = small(tmp_path, "parallel_param { num_shards: 2 }")
    made = forecast(plan, costs, nodes(2, 2, bandwidth=1e12))
    assert made.between == pytest.approx(2 * 448)
    assert made.held[0] < forecast(plan.with_parallel(num_shards=1), costs, nodes(2, 2)).held[0]


def test_the_timeline_is_that_of_the_forecast(tmp_path: Path) -> None:
    made = forecast(*small(tmp_path), nodes(2, 2, bandwidth=BYTES), bars=True)
    assert max(bar.end for bar in made.bars) == pytest.approx(made.seconds)  # no update takes time here
    bars = {bar.label: bar for bar in made.bars if bar.rank == 1}
    assert bars.keys() >= {"F0", "B0", "X0"}
    assert [bars[label].end - bars[label].start for label in ("F0", "B0")] == pytest.approx([2 / 3, 4 / 3])
    assert bars["B0"].start == bars["F0"].end
