"""Runs on a virtual clock: worked by hand, and laws that hold for any cluster."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest

from bpt.base.errors import RunError
from bpt.parallel.cluster.cluster import Cluster, Node, ServerNode
from bpt.parallel.outer.outer_instructions import OuterInstruction, SubmissionReport
from bpt.parallel.outer.simulation.outcome import SimulationOutcome
from bpt.parallel.outer.simulation.simulator import SimulatedJob, simulate
from tests.parallel.outer.simulation.clusters import Scripted, play, random_cluster, schedule
from tests.support.marks import slow

SLOW, FAST = Node("slow", 10), Node("fast", 20)
JOB = SimulatedJob(batch=10, weights=200)


def parts(outcome: SimulationOutcome) -> list[tuple[float, float, float]]:
    return [(node.computing, node.waiting, node.idle) for node in outcome.nodes]


def test_sgwu_waits_for_the_slowest() -> None:
    """20 samples each: passes of 2 s and 1 s."""
    outcome = play("SGWU", [SLOW, FAST], samples=40, passes=3)
    assert outcome.seconds == 6
    assert parts(outcome) == [(6, 0, 0), (3, 3, 0)]
    assert outcome.durations == [[2, 1]] * 3
    assert (outcome.waiting_time, outcome.balance) == (3, 0.75)
    assert (outcome.updates, outcome.staleness, outcome.exchanges) == (3, {}, 3)
    assert (outcome.computed, outcome.waited, outcome.idle) == (0.75, 0.25, 0)


def test_agwu_waits_for_nobody() -> None:
    """The fast node merges at 1, 2 and 3 s, the slow one at 2 s, before it, and at 4 and 6 s."""
    outcome = play("AGWU", [SLOW, FAST], samples=40, passes=3)
    assert outcome.seconds == 6
    assert parts(outcome) == [(6, 0, 0), (3, 0, 3)]
    assert outcome.waiting_time == 3  # what SGWU would have waited
    # Versions missed, in order: fast 0, slow 1, fast 1, fast 0, slow 2, slow 0.
    assert (outcome.updates, dict(outcome.staleness)) == (6, {0: 3, 1: 2, 2: 1})
    assert (outcome.mean_staleness, outcome.max_staleness) == (4 / 6, 2)


def test_idpa_gives_what_nodes_can_do() -> None:
    """30 samples a second for 300 samples: A = 2, so K' = 2 + ⌊3 - 3/2⌋ = 3 passes of 150, 300 and 300."""
    outcome = play("SGWU", [SLOW, FAST], samples=300, passes=3, batches=2)
    assert [node.samples for node in outcome.nodes] == [100, 200]
    assert outcome.seconds == 25
    assert outcome.balance == 1


def test_links_take_latency_and_bandwidth() -> None:
    """1.5 s and 200 bytes at 100 a second: 3.5 s there, 2 s of training, 3.5 s back, and 2 s to merge."""
    node = replace(SLOW, latency=1, bandwidth=100)
    outcome = play("AGWU", [node], 20, 1, server=ServerNode(latency=0.5, update_rate=100))
    assert outcome.seconds == pytest.approx(11)
    assert parts(outcome) == [pytest.approx((2, 9, 0))]


def test_the_servers_link_serves_one_after_the_other() -> None:
    """Weights take 2 s: they are there at 2 and 4 s; submissions, a second later, arrive at 5 and 7 s."""
    outcome = play("AGWU", [FAST, FAST], 40, 1, server=ServerNode(bandwidth=100))
    assert outcome.seconds == 7
    assert parts(outcome) == [(1, 4, 2), (1, 6, 0)]


def test_a_slow_link_of_a_node_does_not_hold_up_the_servers() -> None:
    """The node takes 8 s for a message, the server's link is busy for 2 s of them: the second gets it from 2 s on."""
    outcome = play("AGWU", [replace(FAST, bandwidth=25), FAST], 40, 1, server=ServerNode(bandwidth=100))
    assert parts(outcome)[1][:2] == (1, 6)
    assert parts(outcome)[0][:2] == (1, 16)


def test_there_and_back_do_not_hinder_each_other() -> None:
    """2 s each: the weights for the second travel from 2 to 4 s; the first submits from 2.5 to 4.5 s."""
    first, second = Node("a", 40), Node("b", 20)
    outcome = play("AGWU", [first, second], 40, 1, server=ServerNode(bandwidth=100))
    assert parts(outcome)[0][:2] == (0.5, 4)


def test_the_server_merges_one_after_the_other() -> None:
    """Both submit at 1 s, and a merge takes 3 s."""
    outcome = play("AGWU", [FAST, FAST], 40, 1, server=ServerNode(update_rate=200 / 3))
    assert parts(outcome) == [pytest.approx((1, 3, 3)), pytest.approx((1, 6, 0))]


def test_speed_changes_cut_a_pass() -> None:
    """At half the speed from 1 s on, the second second of work takes two."""
    outcome = play("AGWU", [replace(SLOW, changes=((1.0, 0.5),))], 20, 2)
    assert outcome.durations == [[3], [4]]


def test_idpa_follows_a_node_that_slows_down() -> None:
    """The second node computes half as fast from the middle of the first pass on; the last batch knows."""
    nodes = [Node("a", 100), Node("b", 100, changes=((1.0, 0.5),))]
    outcome = play("SGWU", nodes, 4000, 8, batches=4)
    assert [node.samples for node in outcome.nodes] == [pytest.approx(2667, abs=15), pytest.approx(1333, abs=15)]


def test_a_node_dies_and_the_others_train_its_samples() -> None:
    """20 samples each; the second dies at 0.5 s, the first has 20 in its first pass and all 40 in its second."""
    outcome = play("AGWU", [SLOW, replace(FAST, fails=0.5)], 40, 2)
    assert outcome.seconds == 6
    first, second = outcome.nodes
    assert (first.samples, first.passes, first.computing) == (40, 2, 6)
    assert (second.died, second.computing, second.waiting, second.idle) == (True, 0.5, 0, 0)


def test_nobody_waits_for_the_dead_under_sgwu() -> None:
    """The fast node waits from 1 s on; the slow one dies at 1.5 s, and the fast one goes on with all 40 samples."""
    outcome = play("SGWU", [replace(SLOW, fails=1.5), FAST], 40, 2)
    assert outcome.seconds == 1.5 + 2
    assert outcome.nodes[1].waiting == 0.5


def test_those_that_die_together_are_lost_together() -> None:
    nodes = [FAST, replace(FAST, fails=0.5), replace(SLOW, fails=0.5), replace(SLOW, fails=9), replace(SLOW, fails=1)]
    scripted = Scripted(5, 20, rounds=2)
    outcome = simulate(scripted, Cluster(tuple(nodes)), JOB)  # type: ignore[arg-type]
    assert scripted.gone == [(1, 2), (4,)]  # the fourth has stopped before
    assert [node.died for node in outcome.nodes] == [False, True, True, False, True]


def test_what_a_node_has_sent_before_it_died_is_lost() -> None:
    outcome = play("AGWU", [SLOW, replace(FAST, latency=3, fails=5)], 40, 1)
    assert (outcome.updates, outcome.nodes[1].died) == (1, True)


def test_a_run_without_nodes_fails() -> None:
    with pytest.raises(RunError, match="last computing node"):
        play("AGWU", [replace(SLOW, fails=1), replace(FAST, fails=0.5)], 40, 2)


def test_a_schedule_that_forgets_a_worker_does_not_hang() -> None:
    class Forgets(Scripted):
        def submitted(self, report: SubmissionReport) -> list[OuterInstruction]:
            return []

    with pytest.raises(RunError, match="stands still after 2 s: 2 nodes wait"):
        simulate(Forgets(2, 20, 1), Cluster((SLOW, FAST)), JOB)  # type: ignore[arg-type]


def test_progress_is_told_before_a_batch_is_handed_out() -> None:
    """At 2 s the first has done its 40 samples; the second is at 20 of 40, the third has done them, on their way."""
    nodes = (Node("a", 20), Node("b", 10.5), Node("c", 40, latency=0.6))
    scripted = Scripted(3, 40, rounds=1, asks=[0])
    simulate(scripted, Cluster(nodes), JOB)  # type: ignore[arg-type]
    assert scripted.told == [(1, 20, pytest.approx(20 / 10.5)), (2, 40, 1)]


@pytest.mark.parametrize(("exchange", "exchanges"), [("SGWU", 3), ("AGWU", 3), ("ASGD", 6)])
def test_bytes_are_those_of_eq_11(exchange: str, exchanges: int) -> None:
    """2 c_w for each submission. ASGD submits after each of 2 iterations a pass."""
    outcome = play(exchange, [FAST, FAST], 40, 3)
    assert outcome.exchanges == exchanges
    assert outcome.weight_bytes == outcome.predicted_bytes == 2 * 200 * 2 * exchanges
    assert outcome.data_bytes == 0


def test_asgd_adds_up_passes_from_iterations() -> None:
    outcome = play("ASGD", [SLOW, FAST], 60, 2)
    assert outcome.durations == [[3, pytest.approx(1.5)]] * 2
    assert outcome.updates == 12


def test_data_that_are_sent_travel_and_are_counted() -> None:
    """20 samples of 10 bytes with 200 bytes of weights, at 100 a second: 4 s."""
    outcome = play("AGWU", [replace(FAST, bandwidth=100)], 20, 2, job=SimulatedJob(10, 200, record=10))
    assert outcome.data_bytes == 200
    assert outcome.seconds == 4 + 1 + 2 + 2 + 1 + 2  # the second time no data


def test_nothing_travels_to_a_worker_in_the_servers_process() -> None:
    far = replace(FAST, latency=1)
    outcome = play("AGWU", [far, far], 40, 1, colocated=True)
    assert parts(outcome) == [(1, 0, 2), (1, 2, 0)]
    assert outcome.weight_bytes == 2 * 200


@pytest.mark.parametrize("seed", [*range(10), *map(slow, range(10, 30))])
@pytest.mark.parametrize(("exchange", "batches"), [("SGWU", 0), ("SGWU", 3), ("AGWU", 0), ("AGWU", 3), ("ASGD", 3)])
def test_laws(exchange: str, batches: int, seed: int) -> None:
    """Of any cluster: every second of a node is told, and every sample is trained on one node."""
    cluster = random_cluster(seed)
    made = schedule(exchange, 1000, len(cluster.nodes), 6, batches)
    outcome = simulate(made, cluster, JOB, seed)
    for node, described in zip(outcome.nodes, cluster.nodes, strict=True):
        lived = min(outcome.seconds, described.fails) if node.died else outcome.seconds
        assert node.computing + node.waiting + node.idle == pytest.approx(lived)
        assert node.died or node.passes == made.total
        assert node.trained >= 0 and math.isfinite(node.computing)
    kept = sum(node.samples for node in outcome.nodes if not node.died)
    assert kept <= 1000  # less if those that are left have begun their last pass when one dies
    if not any(node.died for node in outcome.nodes):
        assert kept == 1000
        assert math.fsum(map(computed, outcome.durations)) == pytest.approx(sum(n.computing for n in outcome.nodes))
        if exchange != "ASGD":
            assert outcome.weight_bytes == outcome.predicted_bytes
    assert outcome == simulate(schedule(exchange, 1000, len(cluster.nodes), 6, batches), cluster, JOB, seed)


def computed(times: Sequence[float | None]) -> float:
    return math.fsum(time for time in times if time is not None)


@pytest.mark.parametrize("seed", range(5))
def test_sgwu_without_links_takes_the_slowest_of_each_pass(seed: int) -> None:
    nodes = [replace(node, latency=0, bandwidth=math.inf, fails=math.inf) for node in random_cluster(seed).nodes]
    outcome = play("SGWU", nodes, 1000, 4, seed=seed)
    slowest = [max(time for time in times if time is not None) for times in outcome.durations]
    assert outcome.seconds == pytest.approx(sum(slowest))
    assert outcome.waiting_time == pytest.approx(sum(node.waiting for node in outcome.nodes))


def test_other_seeds_are_other_runs() -> None:
    nodes = [replace(SLOW, noise=0.1), replace(FAST, noise=0.1)]
    assert play("AGWU", nodes, 200, 4, seed=1).seconds != play("AGWU", nodes, 200, 4, seed=2).seconds


NODES, SAMPLES = 10_000, 40


@pytest.mark.slow
@pytest.mark.parametrize("batches", [0, 3], ids=["UDPA", "IDPA"])
@pytest.mark.parametrize("exchange", ["SGWU", "AGWU", "ASGD"])
def test_ten_thousand_nodes(exchange: str, batches: int) -> None:
    """Half of them twice as fast as the others, on links that cost nothing: 40 samples each, trained three times."""
    nodes = [Node("fast" if number % 2 else "slow", 2.0 if number % 2 else 1.0) for number in range(NODES)]
    found = play(exchange, nodes, SAMPLES * NODES, 3, batches, ServerNode(), SimulatedJob(batch=10, weights=200))
    assert sum(node.samples for node in found.nodes) == SAMPLES * NODES
    if batches:  # whole batches, so that a pass is an iteration longer at most
        ideal = 3 * SAMPLES * NODES / (1.5 * NODES)
        assert ideal <= found.seconds <= ideal + 5 * 10
    else:
        assert found.seconds == pytest.approx(3 * SAMPLES)
