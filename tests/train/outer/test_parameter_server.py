"""Parameter servers apart from the main server: whole runs, against runs whose weights are on rank 0."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bpt.base.errors import UserError
from bpt.train.outer.parameter_server import ServerPart, parts_of
from bpt.train.outer.report import read_csv
from tests.train.outer.outer_runs import UNWEIGHED, alone, assert_equal, outer, weights

pytestmark = pytest.mark.usefixtures("folder")


ELEMENTS = 7


def test_parts() -> None:
    assert parts_of(ELEMENTS, [1, 2]) == [ServerPart(1, slice(0, 3)), ServerPart(2, slice(3, 7))]
    assert [part.size for part in parts_of(ELEMENTS, range(1, 4))] == [2, 2, 3]
    assert parts_of(ELEMENTS, []) == [ServerPart(0, slice(0, 7))]


@pytest.mark.parametrize("servers", [1, 2, 3])
def test_sgwu_is_the_same_to_the_last_bit(servers: int) -> None:
    """Two workers, weighted by accuracy and samples; with a BatchNorm, whose statistics lie at the end."""
    outer(3, "exchange: SGWU balance: UNIFORM")
    expected = weights()
    outer(3 + servers, f"exchange: SGWU balance: UNIFORM servers: {servers}", "snapshot_prefix: 'apart'")
    assert_equal(weights(prefix="apart"), expected)
    record = read_csv("apart_run")
    # Every pass each worker gets all weights and gives them back: so many bytes of each part, by hand.
    passes = record.exchanges
    assert [row.rank for row in record.servers] == list(range(1, 1 + servers))
    assert sum(row.elements for row in record.servers) * 4 == record.weights
    for row in record.servers:
        assert row.bytes_sent == row.bytes_received == row.elements * 4 * passes * 2
        assert row.updates == passes and row.waiting_seconds > 0
    assert sum(row.bytes_sent + row.bytes_received for row in record.servers) == record.bytes_counted()
    assert record.bytes_counted() == record.bytes_expected()


def test_one_worker_of_agwu_trains_as_one_process() -> None:
    alone()
    expected = weights()
    outer(4, f"exchange: AGWU servers: 2 agwu_param {{ {UNWEIGHED} }}", "snapshot_prefix: 'apart'")
    assert_equal(weights(prefix="apart"), expected)


def test_a_replay_with_other_workers_on_the_main_server() -> None:
    """AGWU with rank 0 computing, too; weights of its worker go to the parameter servers from memory."""
    parallel = "exchange: AGWU balance: IDPA balance_param { num_batches: 2 } server: COLOCATED servers: 2"
    outer(5, parallel, "max_iter: 12")
    expected = weights(12)
    Path("small_run").rename("first_run")
    outer(5, parallel, "max_iter: 12 snapshot_prefix: 'again'", replay="first_run/replay.jsonl")
    assert_equal(weights(12, "again"), expected)
    assert len(read_csv("again_run").nodes) == 3


def test_workers_of_several_ranks() -> None:
    outer(5, f"exchange: SGWU num_shards: 2 agwu_param {{ {UNWEIGHED} }}")
    expected = weights()
    outer(7, f"exchange: SGWU num_shards: 2 servers: 2 agwu_param {{ {UNWEIGHED} }}", "snapshot_prefix: 'apart'")
    assert_equal(weights(prefix="apart"), expected)


@pytest.mark.parametrize(
    ("ranks", "text", "reason"),
    [
        (3, "exchange: AGWU servers: 2", r"servers: 2 needs rank 0, 2 ranks behind it .* computing node: 4 "),
        (1, "exchange: AGWU servers: 1", r"3 ranks, not 1"),
        (4, "exchange: ASGD servers: 1", r"servers: 1 does not go with exchange: ASGD, where the server applies"),
        (5, "exchange: AGWU num_shards: 2 servers: 1", r"start 4 or 6 \(mpirun -n 6\)"),
        (3, "exchange: AGWU servers: -1", r"servers"),
    ],
)
def test_what_does_not_go(ranks: int, text: str, reason: str) -> None:
    with pytest.raises(UserError, match=reason):
        outer(ranks, text)


def test_dtype_of_numpy_by_its_name() -> None:
    """As the main server tells it."""
    assert np.dtype(np.dtype(np.float32).str) == np.float32
