"""Forecasts worked out by hand, and against the clock of one pipeline."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from bpt.config.proto import bpt_pb2 as pb
from bpt.parallel.balance.balance_rules import ITERATION
from bpt.parallel.cluster.cluster import Cluster, IntraNodeLink, Node
from bpt.parallel.pipeline.pipeline_clock import Clock
from bpt.parallel.pipeline.placement.problem import Device, DeviceLink, problem_of
from bpt.parallel.pipeline.stage_placement import place
from bpt.perf.forecast.arrangement import Arrangement
from bpt.perf.forecast.exchange_costs import STATUS
from bpt.perf.forecast.forecast import Iteration, forecast
from bpt.perf.forecast.peak_memory import HOLES, LIBRARIES
from tests.support.small_forecasts import BYTES, TIMES, nodes, small
from tests.support.small_solver import NET


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
    cluster = replace(nodes(4, 4, ranks=2, bandwidth=BYTES), within=IntraNodeLink(0.0, BYTES))
    made = forecast(*small(tmp_path, text), cluster)
    assert made.exposed == pytest.approx(1 + (2 + 1) / 4)
    assert made.between == pytest.approx(2 * BYTES / 4)
    assert made.within == pytest.approx(2 * 2 * BYTES + 2 * 2 * BYTES / 4)


@pytest.mark.parametrize(
    ("codec", "sent", "passes"),
    [
        ("BF16", 0.5, 28),
        ("FP16", 0.5, 28),
        ("TOPK ratio: 0.125", 0.25, 70),  # an eighth of the numbers, with places as large
        # Of conv's 4 x 27 weights 31, of ip's 3 x 64 67, and 7 biases.
        ("POWERSGD rank: 1", (31 + 67 + 7) / 307, 17),
    ],
)
def test_what_a_codec_takes_where_nobody_has_measured(tmp_path: Path, codec: str, sent: float, passes: int) -> None:
    """The update takes 0.4 s, a tenth of a whole batch's time, and goes through memory 5 times."""
    plan, costs = small(tmp_path, f"parallel_param {{ compression_param {{ codec: {codec} }} }}")
    costs = replace(costs, update=12 / 9)
    made = forecast(plan, costs, nodes(2, 2, bandwidth=BYTES))
    assert made.exposed == pytest.approx(sent + 0.4 * passes / 5)
    assert forecast(plan, costs, nodes(2, ranks=2)).exposed == 0  # between hosts alone


@pytest.mark.parametrize(
    ("cores", "exposed"),
    [
        # ip's 195 numbers are coded and sent while conv runs backward, for two thirds of a second; conv's 112 behind.
        (0, 0.112 + 224 / BYTES),
        (2, 0.112 + 224 / BYTES),
        (1, 0.195 + 0.112 + 224 / BYTES),  # the core that computes codes both; only messages travel beside it
    ],
)
def test_where_a_core_is_left_codes_are_made_beside_backward(tmp_path: Path, cores: int, exposed: float) -> None:
    """A millisecond for each number, as one of the nodes has measured; the other is faster."""
    text = "parallel_param { exchange: CGDP cgdp_param { chunk_size: 1 } compression_param { codec: BF16 links: ALL } }"
    plan, costs = small(tmp_path, text)
    slow, fast = (
        replace(node, coding=((pb.CompressionParameter.TOPK, 9.0), (pb.CompressionParameter.BF16, seconds)))
        for node, seconds in zip(nodes(2, 2, bandwidth=BYTES, cores=cores).nodes, (1e-3, 1e-4), strict=True)
    )
    made = forecast(plan, costs, Cluster((slow, fast)))
    assert made.exposed == pytest.approx(exposed)
    assert made.seconds == pytest.approx(2 + exposed)
    near = forecast(plan, costs, Cluster((replace(slow, ranks=2, cores=0),)))
    assert near.exposed == 0  # CGDP adds up in memory, and codes nothing there


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
    busy = replace(cluster, busy_waking=0.75)  # ip's have to get a core from conv's backward
    assert forecast(*chunks, busy).exposed == pytest.approx(0.75 + 780 / BYTES + 448 / BYTES - 2 * 4 / 12)


def test_sums_and_computing_hold_each_other_up(tmp_path: Path) -> None:
    """ip's 780 bytes travel while conv runs backward, for two thirds of a second: at half of the speed, which leaves
    some of them for afterwards; or at once, but each takes a thousandth of a second of conv's."""
    plan, costs = small(tmp_path, "parallel_param { exchange: CGDP cgdp_param { chunk_size: 1 } }")
    slowly = forecast(plan, costs, replace(nodes(2, 2, bandwidth=BYTES), busy_efficiency=0.5))
    assert slowly.exposed == pytest.approx((780 + 448) / BYTES - (2 * 4 / 12) / 2)
    fast = nodes(2, 2, bandwidth=BYTES * 1e6, interference=1e-3)
    assert forecast(plan, costs, fast).seconds == pytest.approx(2 + 0.78, abs=1e-5)
    assert forecast(plan, costs, fast).exposed == pytest.approx(0.78, abs=1e-5)
    whole, _ = small(tmp_path)
    assert forecast(whole, costs, fast).exposed == pytest.approx(0, abs=1e-5)


def test_all_wait_for_the_last_where_times_vary(tmp_path: Path) -> None:
    """Two ranks of 2 s ± a tenth: the mean of the later one is 0.2 / sqrt(π) s beyond."""
    made = forecast(*small(tmp_path), nodes(2, 2, noise=0.1))
    assert made.seconds == pytest.approx(2 + 0.2 / math.sqrt(math.pi), rel=1e-4)
    assert made.exposed == 0
    assert made.computing.tolist() == [2.0, 2.0]


def test_each_segment_beside_the_first_takes_its_time(tmp_path: Path) -> None:
    """Two chunks have one border, of an eighth of a second for each of 4 samples; all in one segment have none."""
    cluster = nodes(2, 2, border=0.125)
    chunks = small(tmp_path, "parallel_param { exchange: CGDP cgdp_param { chunk_size: 1 } }")
    assert forecast(*chunks, cluster).seconds == pytest.approx(2 + 0.5)
    assert forecast(*small(tmp_path), cluster).seconds == pytest.approx(2)
    assert forecast(*chunks, nodes(2, 2, border=0.125, border_overhead=0.75)).seconds == pytest.approx(2 + 0.5 + 0.75)


def test_a_host_whose_cores_all_compute_hides_nothing(tmp_path: Path) -> None:
    """Two ranks on a node; with cores to spare chunks travel beside backward."""
    plan, costs = small(tmp_path, "parallel_param { exchange: CGDP cgdp_param { chunk_size: 1 } }")
    cluster = replace(nodes(2, ranks=2, cores=2), within=IntraNodeLink(0.0, BYTES))
    assert forecast(plan, costs, cluster).exposed == pytest.approx(1.0)
    cluster = replace(nodes(2, ranks=2, cores=4), within=IntraNodeLink(0.0, BYTES))
    made = forecast(plan, costs, cluster)
    assert made.exposed == pytest.approx(448 / BYTES)
    assert (made.within, made.between) == (2 * BYTES, 0)


@pytest.mark.parametrize("schedule", ["GPIPE", "ONE_F_ONE_B", "SEQUENTIAL"])
def test_a_pipeline_is_as_its_own_clock_has_it(tmp_path: Path, schedule: str) -> None:
    """One pipeline of two alike devices, as bpt plan plays it; and two replicas of it halve the batch."""
    overrides = f"parallel_param {{ num_stages: 2 pipeline_param {{ micro_batches: 4 schedule: {schedule} }} }}"
    plan, costs = small(tmp_path, overrides)
    param = plan.parallel_param.pipeline_param
    devices, link = (Device("a"), Device("b")), DeviceLink(0.5, 1000.0)
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
    """Values, a history and a copy of the gradients of 1,228 bytes, and as much that the library's all-reduce takes for
    itself; filters of 432 bytes twice, as they are laid out.

    Blobs are half of x, y, conv, ip and the loss. When backward has come to conv, ip and the loss are gone, and all
    gradients there; the largest diffs are those of ip's bottom and top.
    """
    conv, ip = 8 * 4 * 4 * 4, 8 * 3
    blobs, behind, diffs = 4 * (8 * 3 * 6 * 6 + 8 + conv + ip + 1), 4 * (ip + 1), 4 * (conv + ip)
    expected = LIBRARIES + 3 * BYTES + 2 * 432 + (blobs + diffs - behind) / 2 + 2 * BYTES
    laid_out = "engine: CHANNELS_LAST"
    made = forecast(*small(tmp_path, laid_out), nodes(2, 2, memory=expected))
    assert made.peak_memory.tolist() == [expected] * 2
    assert made.fits
    assert not forecast(*small(tmp_path, laid_out), nodes(2, 2, memory=expected - 1)).fits
    assert forecast(*small(tmp_path), nodes(2, 2)).peak_memory[0] == expected - 2 * 432


def test_areas_of_cgdp_and_what_a_codec_leaves_out(tmp_path: Path) -> None:
    """In place of packed gradients an area; for a codec another copy; on one host also the sum, and half of what the
    other rank has."""
    far, near = nodes(2, 2), nodes(2, ranks=2)
    plain, cgdp, coded = (
        small(tmp_path, f"parallel_param {{ {fields} }}")
        for fields in ("exchange: RING", "exchange: CGDP", "exchange: CGDP compression_param { codec: BF16 }")
    )
    assert forecast(*cgdp, far).peak_memory[0] == forecast(*plain, far).peak_memory[0]
    assert forecast(*coded, far).peak_memory[0] == forecast(*plain, far).peak_memory[0] + BYTES
    assert forecast(*cgdp, near).peak_memory[0] == forecast(*plain, near).peak_memory[0] + 1.5 * BYTES
    assert forecast(*coded, near).peak_memory[0] == forecast(*cgdp, near).peak_memory[0]


def test_gradients_that_add_up_are_there_with_all_blobs(tmp_path: Path) -> None:
    """In two passes of 8 samples, on one rank: a gradient more, of ip's 768 bytes; no copies that are sent."""
    conv, ip = 8 * 4 * 4 * 4, 8 * 3
    blobs, diffs = 4 * (8 * 3 * 6 * 6 + 8 + conv + ip + 1), 4 * (conv + ip)
    made = forecast(*small(tmp_path, "engine: CONTIGUOUS", "iter_size: 2"), nodes(2))
    assert made.peak_memory.tolist() == [LIBRARIES + 3 * BYTES + blobs + diffs + 768]


@pytest.mark.parametrize(("schedule", "alive"), [("ONE_F_ONE_B", (2, 1)), ("GPIPE", (4, 4))])
def test_stages_hold_what_crosses_and_holes(tmp_path: Path, schedule: str, alive: tuple[int, int]) -> None:
    """Two samples a micro-batch: of conv's 112 numbers and ip's 195 values, gradients, history; the largest one that is
    added. Of conv's blob on the one stage what leaves, the diff that comes, and the next; on the other what is kept,
    the next, if there is one, and the diff that leaves. Labels only go."""
    text = f"parallel_param {{ num_stages: 2 pipeline_param {{ micro_batches: 4 schedule: {schedule} }} }}"
    first, second = forecast(*small(tmp_path, text), nodes(2, 2)).peak_memory.tolist()
    conv, ip, label = 4 * 64, 4 * 3, 4
    blobs: float = 4 * 3 * 6 * 6 + label + conv
    here = (alive[0] + HOLES) * blobs + conv + 3 * conv + label
    assert first == pytest.approx(LIBRARIES + 3 * 448 + 432 + 2 * here)
    blobs, kept = ip + 4 / 8, alive[1] + (alive[1] < 4)
    here = (alive[1] + HOLES) * blobs + conv + ip + (kept + 1) * conv + kept * label
    assert second == pytest.approx(LIBRARIES + 3 * 780 + 768 + 2 * here)


def test_shards_hold_and_send_slices(tmp_path: Path) -> None:
    """Peers: conv's 448 bytes are summed over both; of ip each has half, which nobody else has."""
    plan, costs = small(tmp_path, "parallel_param { num_shards: 2 }")
    made = forecast(plan, costs, nodes(2, 2, bandwidth=1e12))
    assert made.between == pytest.approx(2 * 448)
    assert made.peak_memory[0] < forecast(plan.with_parallel(num_shards=1), costs, nodes(2, 2)).peak_memory[0]


def test_ranks_begin_after_their_own_update(tmp_path: Path) -> None:
    """5 of 8 samples on the first rank, whose update takes 0.5 s, and 3 on the second, whose update takes 1 s."""
    plan, costs = small(tmp_path)
    cluster = Cluster((Node("a", 5, update=0.5), Node("b", 3, update=1.0)))
    made = Iteration(Arrangement(plan, costs, cluster, given_shares=(5, 3))).forecast()
    assert made.seconds == pytest.approx(2.0)


@pytest.mark.parametrize("bandwidth", [1e2, 1e3, 1e5])
@pytest.mark.parametrize("speeds", [(4, 1), (4, 4), (4, 2, 1)])
def test_shares_that_make_the_iteration_short(tmp_path: Path, speeds: tuple[float, ...], bandwidth: float) -> None:
    """ip is exchanged while conv runs backward. A node of a quarter of the speed updates in four times the seconds.

    Of two ranks the shares are the best that there are. They differ where exchange and computing take equally long.
    """
    text = "parallel_param { balance: DYNAMIC exchange: CGDP cgdp_param { chunk_size: 1 } }"
    plan, costs = small(tmp_path, text, net=NET.replace("{ dim: 8 ", "{ dim: 80 "))
    by_iteration = plan.with_parallel(balance_param=replace(plan.parallel_param.balance_param, by=ITERATION))
    cluster = Cluster(
        tuple(
            Node(f"n{n}", 10 * v, update=0.8 / v, overhead=0.5 / v, bandwidth=bandwidth) for n, v in enumerate(speeds)
        )
    )
    compute, iteration = (forecast(each, costs, cluster) for each in (plan, by_iteration))
    assert iteration.seconds <= compute.seconds * (1 + 1e-9)
    assert sum(iteration.shares) == costs.batch == 80
    if len(speeds) == 2:
        made = (Arrangement(plan, costs, cluster, given_shares=(80 - own, own)) for own in range(1, 80))
        assert iteration.seconds == pytest.approx(min(Iteration(each).forecast().seconds for each in made))
    if (speeds, bandwidth) == ((4, 1), 1e3):
        assert (compute.shares, iteration.shares) == ((72, 8), (75, 5))
        assert iteration.seconds < 0.95 * compute.seconds


@pytest.mark.parametrize(("schedule", "passes"), [("ONE_F_ONE_B", 12 / 12), ("ZERO_BUBBLE", 18 / 12)])
def test_a_backward_pass_in_two_takes_twice_what_does_not_depend_on_samples(
    tmp_path: Path, schedule: str, passes: float
) -> None:
    """Of two stages one computes at a time, 12 units of work. Backward, conv and ip on the first stage have 6 of them:
    in two parts, these take what is fixed twice."""
    plan, costs = small(
        tmp_path, f"parallel_param {{ num_stages: 2 pipeline_param {{ micro_batches: 1 schedule: {schedule} }} }}"
    )
    fixed, none = (forecast(plan, costs, nodes(2, 2, overhead=each)).seconds for each in (0.3, 0.0))
    assert fixed - none == pytest.approx(0.3 * passes)


def test_pieces_of_split_layers_overlap(tmp_path: Path) -> None:
    """ip takes 1/6 s forward and 1/3 s backward, half of it for weights. Its bottoms, 1,024 bytes, travel for as long
    as forward computes, its tops, 24 bytes, for t. In one piece nothing overlaps. In two, half of what travels is
    hidden forward, and backward half of t and all of the bottoms."""
    plan, costs = small(tmp_path, "parallel_param { num_shards: 2 }")
    cluster = nodes(2, 2, latency=0, bandwidth=6 * 1024)
    pieces = plan.with_parallel(fc_param=replace(plan.parallel_param.fc_param, pieces=2))
    t = 24 / (6 * 1024)
    one, two = (forecast(each, costs, cluster).seconds for each in (plan, pieces))
    assert one - two == pytest.approx((1 / 12 + t / 2) + (1 / 6 + t / 2))


def test_slices_are_updated_and_moved_as_slices(tmp_path: Path) -> None:
    """Of 1,228 bytes of parameters each peer updates conv's 448 and half of ip's 780. Of the update's five ways through
    memory a pass makes three, 0.3 s, of which ip's is half for a slice; the work of each stays what it was."""
    plan, costs = small(tmp_path, "parallel_param { num_shards: 2 }")
    made = forecast(plan, costs, nodes(2, 2, overhead=0.4, update=0.5))
    assert made.seconds == pytest.approx((0.4 - 0.3) + 4 / 2 + 0.3 * (448 + 390) / 1228 + 0.5 * (448 + 390) / 1228)
    whole, _ = small(tmp_path)
    assert forecast(whole, costs, nodes(2, 2, overhead=0.4, update=0.5)).seconds == pytest.approx(0.4 + 4 / 2 + 0.5)


def test_a_stage_moves_its_own_parameters(tmp_path: Path) -> None:
    """conv is half of the work and 448 of 1,228 bytes of parameters."""
    text = "parallel_param { num_stages: 2 pipeline_param { micro_batches: 1 schedule: GPIPE } }"
    first, second = forecast(*small(tmp_path, text), nodes(2, 2, overhead=0.4, update=0.5)).computing.tolist()
    own, other = 448 / 1228, 780 / 1228
    assert first == pytest.approx(((0.4 - 0.3) + 8 / 2) / 2 + (0.3 + 0.5) * own)
    assert second == pytest.approx(((0.4 - 0.3) + 8 / 2) / 2 + (0.3 + 0.5) * other)


def test_the_timeline_is_that_of_the_forecast(tmp_path: Path) -> None:
    made = forecast(*small(tmp_path), nodes(2, 2, bandwidth=BYTES), bars=True)
    assert max(bar.end for bar in made.bars) == pytest.approx(made.seconds)  # no update takes time here
    bars = {bar.label: bar for bar in made.bars if bar.rank == 1}
    assert bars.keys() >= {"F0", "B0", "X0"}
    assert [bars[label].end - bars[label].start for label in ("F0", "B0")] == pytest.approx([2 / 3, 4 / 3])
    assert bars["B0"].start == bars["F0"].end


@pytest.mark.parametrize(
    ("overrides", "node", "seconds"),
    [
        # A whole batch takes 1 + 8 / 2 = 5 s, a tenth of which is the update, as costs have it. So it is of the
        # overhead, and half of the batch takes 0.5 + 4 / 2, and 0.5 for the update.
        ("", {"overhead": 1.0}, 3.0),
        # 4 s, of which the update is 0.4 s and a sample 0.45.
        ("", {}, 4 * 0.45 + 0.4),
        # What was measured by itself counts.
        ("", {"overhead": 1.0, "update": 0.25}, 1 + 4 / 2 + 0.25),
        # An overhead comes in each pass, the update once.
        ("iter_size: 3", {"overhead": 1.0, "update": 0.25}, 3 * (1 + 4 / 2) + 0.25),
    ],
)
def test_an_update_counts_once(tmp_path: Path, overrides: str, node: dict[str, float], seconds: float) -> None:
    plan, costs = small(tmp_path, overrides)
    made = forecast(plan, replace(costs, update=12 / 9), nodes(2, 2, **node))  # of 12 + 12 / 9 units a tenth
    assert made.seconds == pytest.approx(seconds)


def test_of_a_tree_the_root_alone_updates(tmp_path: Path) -> None:
    """The fast one: half of the batch takes the other 4 s, and the root a tenth of a whole batch's 2 s more."""
    plan, costs = small(tmp_path, "parallel_param { exchange: TREE }")
    made = forecast(plan, replace(costs, update=12 / 9), nodes(4, 1))
    assert made.seconds == pytest.approx(0.9 * 4 + 0.2)
