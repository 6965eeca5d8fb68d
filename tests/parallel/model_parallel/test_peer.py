"""PeerOperator: losses, blobs, diffs and gradients of one process; bytes of MPI-FC's Fig. 6."""

from __future__ import annotations

import pytest

from bpt.config.proto import bpt_pb2 as pb
from tests.support.cut_nets import layer
from tests.support.sharded_operators import NETS, PEER, Job, assert_equal, conv, fc, fed

FLOAT = 4  # bytes

SPREADS = {"2 shards": (2, (4, 3)), "3 shards": (3, (3, 1, 3)), "3 shards, one idle": (3, (5, 0, 2))}


def job(layers: list[str], shards: int, rows: tuple[int, ...], **more: object) -> Job:
    return Job([fed(sum(rows), 3, 5, 5), *layers], PEER, shards, rows, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("pieces", [1, 3])
@pytest.mark.parametrize("spread", SPREADS.values(), ids=SPREADS.keys())
@pytest.mark.parametrize("layers", NETS.values(), ids=NETS.keys())
def test_all_is_as_on_one_process(layers: list[str], spread: tuple[int, tuple[int, ...]], pieces: int) -> None:
    both = job(layers, *spread, pieces=pieces)
    assert_equal(both.together(), both.alone())


@pytest.mark.parametrize("rows", [(2, 1, 3, 2), (3, 0, 0, 4), (0, 0, 2, 5)])
def test_two_groups(rows: tuple[int, ...]) -> None:
    """Ranks of one group hold all slices; gradients of a slice are summed over the groups."""
    both = job(NETS["three in a row"], 2, rows, pieces=2)
    assert_equal(both.together(), both.alone())


def test_shares_that_have_been_turned() -> None:
    both = job(NETS["three in a row"], 2, (3, 2, 1, 1), rotation=0.7)
    assert_equal(both.together(), both.alone())


@pytest.mark.parametrize("pieces", [1, 2])
def test_gradients_of_several_passes_add_up(pieces: int) -> None:
    both = job(NETS["one behind the other"], 3, (2, 4, 1), passes=3, pieces=pieces)
    assert_equal(both.together(), both.alone())


@pytest.mark.parametrize("layers", NETS.values(), ids=NETS.keys())
def test_diffs_of_the_inputs(layers: list[str]) -> None:
    both = job(layers, 2, (1, 3), force_backward=True)
    ours = both.together()
    assert 0 in ours.diffs
    assert_equal(ours, both.alone())


@pytest.mark.parametrize("layers", NETS.values(), ids=NETS.keys())
def test_channels_last(layers: list[str]) -> None:
    both = job(layers, 2, (4, 3), engine=pb.SolverParameter.CHANNELS_LAST, force_backward=True)
    assert_equal(both.together(), both.alone())


@pytest.mark.parametrize("pieces", [1, 2])
def test_a_pass_without_backward(pieces: int) -> None:
    both = job(NETS["one behind the other"], 3, (3, 0, 4), phase=pb.TEST, pieces=pieces)
    ours, theirs = both.together(), both.alone()
    for edge, value in ours.values.items():
        assert value.allclose(theirs.values[edge], rtol=1e-6, atol=1e-6), edge
    assert (ours.loss - theirs.loss).abs() < 1e-6
    assert not ours.diffs
    assert not ours.grads


@pytest.mark.gpu
@pytest.mark.parametrize("layers", NETS.values(), ids=NETS.keys())
def test_on_a_gpu(layers: list[str]) -> None:
    """The one process computes there, too: masks are drawn on the device."""
    both = job(layers, 2, (4, 3), device="cuda", engine=pb.SolverParameter.CHANNELS_LAST, force_backward=True)
    assert_equal(both.together(), both.alone())


def test_bytes_are_those_of_figure_6() -> None:
    """Of a blob of S elements each of k workers sends S/k to the k-1 others and receives (k-1) S/k."""
    k, batch, features, a, b = 3, 6, 4 * 3 * 3, 9, 6
    layers = [
        conv("c", "x"),
        fc("a", "c", a),
        layer("ReLU", "a", "a"),
        fc("b", "a", b),
        layer("Sigmoid", "b", "s", "loss_weight: 1"),
    ]
    both = job(layers, k, (2, 2, 2))
    all_blobs = batch * features + batch * a  # each worker ends up with both bottoms whole
    samples = batch * b // k  # and, of the last top, with its own samples
    for result in both.ranks():
        assert set(result.traffic) == {"Allgatherv", "Alltoallv", "Reduce_scatter"}
        gathered, traded, summed = (result.traffic[m] for m in ("Allgatherv", "Alltoallv", "Reduce_scatter"))
        assert (gathered.calls, traded.calls, summed.calls) == (2, 2, 2)
        assert gathered.sent == gathered.received == all_blobs // k * (k - 1) * FLOAT
        assert summed.sent == summed.received == all_blobs // k * (k - 1) * FLOAT
        assert traded.sent == traded.received == 2 * samples // k * (k - 1) * FLOAT
