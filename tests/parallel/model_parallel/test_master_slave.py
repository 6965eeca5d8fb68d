"""MasterSlaveOperator: losses, blobs, diffs and gradients of one process; elements moved as in MPI-FC's Table 1."""

from __future__ import annotations

import pytest

from bpt.config.proto import bpt_pb2 as pb
from bpt.system.events.totals import Traffic
from tests.support.cut_nets import layer
from tests.support.sharded_operators import MASTER_SLAVE, NETS, Job, Result, assert_equal, conv, fc, fed

FLOAT = 4  # bytes


def job(layers: list[str], shards: int, rows: tuple[int, ...] = (7,), **more: object) -> Job:
    return Job([fed(sum(rows), 3, 5, 5), *layers], MASTER_SLAVE, shards, rows, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(("shards", "pieces"), [(2, 1), (3, 1), (4, 1), (2, 9), (3, 2)])
@pytest.mark.parametrize("layers", NETS.values(), ids=NETS.keys())
def test_all_is_as_on_one_process(layers: list[str], shards: int, pieces: int) -> None:
    both = job(layers, shards, pieces=pieces)
    assert_equal(both.together(), both.alone())


@pytest.mark.parametrize("rows", [(2, 5), (7, 0)])
@pytest.mark.parametrize("shards", [2, 3])
def test_several_masters(rows: tuple[int, ...], shards: int) -> None:
    both = job(NETS["three in a row"], shards, rows, rotation=0.7, pieces=2)
    assert_equal(both.together(), both.alone())


def test_gradients_of_several_passes_add_up() -> None:
    both = job(NETS["one behind the other"], 3, passes=3)
    assert_equal(both.together(), both.alone())


@pytest.mark.parametrize("layers", NETS.values(), ids=NETS.keys())
def test_diffs_of_the_inputs(layers: list[str]) -> None:
    both = job(layers, 3, force_backward=True)
    ours = both.together()
    assert 0 in ours.diffs
    assert_equal(ours, both.alone())


@pytest.mark.parametrize("layers", NETS.values(), ids=NETS.keys())
def test_channels_last(layers: list[str]) -> None:
    both = job(layers, 3, engine=pb.SolverParameter.CHANNELS_LAST, force_backward=True)
    assert_equal(both.together(), both.alone())


def test_a_pass_without_backward() -> None:
    both = job(NETS["one behind the other"], 3, phase=pb.TEST)
    ours, theirs = both.together(), both.alone()
    for edge, value in ours.values.items():
        assert value.allclose(theirs.values[edge], rtol=1e-6, atol=1e-6), edge
    assert (ours.loss - theirs.loss).abs() < 1e-6
    assert not ours.diffs
    assert not ours.grads


def test_a_slave_has_no_loss_and_no_blobs() -> None:
    _, *slaves = job(NETS["one behind the other"], 3).ranks()
    for slave in slaves:
        assert slave.loss == 0
        assert not slave.values
        assert not slave.diffs


@pytest.mark.gpu
@pytest.mark.parametrize("layers", NETS.values(), ids=NETS.keys())
def test_on_a_gpu(layers: list[str]) -> None:
    """The one process computes there, too: masks are drawn on the device."""
    both = job(layers, 3, device="cuda", engine=pb.SolverParameter.CHANNELS_LAST, force_backward=True)
    assert_equal(both.together(), both.alone())


def sent(results: list[Result], *methods: str) -> int:
    """Elements that all ranks together sent."""
    return sum(result.traffic.get(method, Traffic()).sent for result in results for method in methods) // FLOAT


BATCH = 5
CONV = 4 * 3 * 3  # n_b of the first fully connected layer


@pytest.mark.parametrize("slaves", [1, 2, 3])
def test_elements_moved_are_those_of_table_1(slaves: int) -> None:
    """B · (K n_b + n_t) forward, and as many backward; 7 outputs are divided evenly by one slave only."""
    layers = [conv("c", "x"), fc("a", "c", 7), layer("Sigmoid", "a", "s", "loss_weight: 1")]
    results = job(layers, slaves + 1, (BATCH,)).ranks()
    assert sent(results, "Bcast", "Gatherv") == BATCH * (slaves * CONV + 7)
    assert sent(results, "Scatterv", "Reduce") == BATCH * (slaves * CONV + 7)
    assert {method for result in results for method in result.traffic} == {"Bcast", "Gatherv", "Scatterv", "Reduce"}
    received = sum(entry.received for result in results for entry in result.traffic.values())
    assert received == 2 * BATCH * (slaves * CONV + 7) * FLOAT


def test_several_layers_in_a_row_move_what_each_does() -> None:
    layers = [
        conv("c", "x"),
        fc("a", "c", 7),
        layer("ReLU", "a", "a"),
        fc("b", "a", 5),
        layer("Sigmoid", "b", "s", "loss_weight: 1"),
    ]
    results = job(layers, 4, (BATCH,), passes=2).ranks()
    assert sent(results, "Bcast") == 2 * BATCH * 3 * (CONV + 7)
    assert sent(results, "Gatherv") == 2 * BATCH * (7 + 5)
    assert sent(results, "Scatterv") == 2 * BATCH * (7 + 5)
    assert sent(results, "Reduce") == 2 * BATCH * 3 * (CONV + 7)


def test_a_diff_that_nobody_wants_is_not_sent() -> None:
    layers = [fc("a", "x", 7), layer("Sigmoid", "a", "s", "loss_weight: 1")]
    results = job(layers, 3, (BATCH,)).ranks()
    assert sent(results, "Scatterv") == BATCH * 7
    assert not any("Reduce" in result.traffic for result in results)
