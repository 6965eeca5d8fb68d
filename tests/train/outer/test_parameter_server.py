"""Parameter servers apart from the main server: whole runs, against runs whose weights are on rank 0."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from bpt.base.errors import UserError
from bpt.config.proto import bpt_pb2 as pb
from bpt.train.outer.parameter_server import ServerPart, parts_of
from bpt.train.outer.report import read_csv
from tests.train.outer.outer_runs import UNWEIGHED, alone, assert_equal, outer, weights

pytestmark = pytest.mark.usefixtures("folder")


ELEMENTS = 7


def test_parts() -> None:
    assert parts_of(ELEMENTS, [1, 2]) == [ServerPart(1, slice(0, 3)), ServerPart(2, slice(3, 7))]
    assert [part.size for part in parts_of(ELEMENTS, range(1, 4))] == [2, 2, 3]
    assert parts_of(ELEMENTS, []) == [ServerPart(0, slice(0, 7))]


def test_outer_steps_are_the_same_on_servers_of_parts_and_are_resumed() -> None:
    """And in a resumed run: momentum continues, so that its first step is longer than the first of all."""
    parallel = f"exchange: SGWU agwu_param {{ {UNWEIGHED} }} outer_param {{ type: NESTEROV }}"
    for prefix, ranks, text in (("small", 3, parallel), ("apart", 5, f"{parallel} servers: 2")):
        outer(ranks, text, f"snapshot_prefix: '{prefix}'")
        more = f"max_iter: 12 snapshot_prefix: '{prefix}'"
        outer(ranks, text, more, resume=f"{prefix}_iter_9.solverstate")
    assert_equal(weights(12, "apart"), weights(12))
    memory = remembered()
    assert memory.keys() == {"outer momentum"}
    for iteration in (9, 12):
        apart = remembered("apart", iteration)["outer momentum"]
        np.testing.assert_array_equal(apart, remembered("small", iteration)["outer momentum"])
    resumed = weights(12)
    outer(3, f"exchange: SGWU agwu_param {{ {UNWEIGHED} }}", "max_iter: 12", resume="small_iter_9.solverstate")
    assert not remembered(iteration=12)  # a run without outer steps has no use for it
    with pytest.raises(AssertionError):
        assert_equal(weights(12), resumed)


def test_a_table_and_delayed_momentum_on_servers_are_replayed() -> None:
    step = "outer_param { type: DELAYED_NESTEROV momentum: 0.5 }"
    parallel = f"exchange: AGWU servers: 2 agwu_param {{ staleness: TABLE {UNWEIGHED} }} {step}"
    outer(5, parallel)
    Path("small_run").rename("first_run")
    outer(5, parallel, "snapshot_prefix: 'again'", replay="first_run/replay.jsonl")
    assert_equal(weights(prefix="again"), weights())
    memory, again = remembered(), remembered("again")
    assert {"submission of worker 0", "submission of worker 1"} <= memory.keys() == again.keys()
    for name, values in memory.items():
        np.testing.assert_array_equal(again[name], values, err_msg=name)
    outer(5, parallel, "max_iter: 12 snapshot_prefix: 'on'", resume="again_iter_9.solverstate")
    (first, *_) = (
        json.loads(line) for line in Path("on_run/replay.jsonl").read_text().splitlines() if line.startswith('{"Merge')
    )
    assert len(first["Merge"]["correction"]["table"]) == 2  # that of the other worker was in the snapshot


def remembered(prefix: str = "small", iteration: int = 9) -> dict[str, NDArray[np.float32]]:
    """What a snapshot has of the server's memory."""
    state = pb.SolverState.FromString(Path(f"{prefix}_iter_{iteration}.solverstate").read_bytes())
    return {entry.name: np.array(entry.values.data, np.float32) for entry in state.exchange_memory}


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
