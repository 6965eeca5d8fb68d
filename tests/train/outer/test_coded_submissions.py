"""Submissions as codes: what is told, what is kept for later, and whole runs of the outer layer that send them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from bpt.config.plan.run_plan import CompressionSpec, ParallelSpec
from bpt.config.proto import bpt_pb2 as pb
from bpt.parallel.exchange.codec.half_codec import Half
from bpt.parallel.exchange.codec.top_k import Largest
from bpt.train.outer.coded_submissions import Coding, codings
from bpt.train.outer.report import read_csv
from tests.train.outer.outer_runs import alone, assert_equal, outer, weights

pytestmark = pytest.mark.usefixtures("folder")


FLOAT32 = np.dtype(np.float32)
TOPK = "compression_param { codec: TOPK ratio: 0.25 links: ALL }"
BF16 = "compression_param { codec: BF16 links: ALL }"


def test_the_largest_changes_go_first_and_the_others_later() -> None:
    """Half of 4 weights travel, as differences to the version that the worker has; a statistic as it is."""
    coding = Coding(Largest(0.5), 5, 4, FLOAT32, differs=True)
    assert coding.nbytes == 2 * (4 + 4) + 4
    base, rest = np.array([1, 1, 1, 1, 9], np.float32), torch.zeros(4)
    code = coding.encode(np.array([1.5, 5, 1.25, -2, 7], np.float32), base, rest)
    assert code.nbytes == coding.nbytes
    assert coding.decode(code, base).tolist() == [1, 5, 1, -2, 7]
    assert rest.tolist() == [0.5, 0, 0.25, 0]
    code = coding.encode(np.array([1.5, 5, 1.25, -2, 7], np.float32), np.array([1.5, 5, 1.25, -2, 8], np.float32), rest)
    assert coding.decode(code, np.zeros(5, np.float32)).tolist() == [0.5, 0, 0.25, 0, 7]
    assert rest.tolist() == [0, 0, 0, 0]


def test_all_that_was_trained_is_told_in_the_end() -> None:
    """Gradients, which have no base: what came out and what is kept add up to what went in."""
    coding = Coding(Half(torch.bfloat16), 6, 6, FLOAT32, differs=False)
    generator, rest = np.random.default_rng(3), torch.zeros(6)
    given, told = np.zeros(6), np.zeros(6)
    for _ in range(20):
        values = generator.standard_normal(6).astype(np.float32)
        given += values
        told += coding.decode(coding.encode(values, None, rest), None)
    np.testing.assert_allclose(told + rest.numpy(), given, rtol=1e-5, atol=1e-5)
    assert np.abs(told - given).max() > 1e-4


def test_a_worker_that_has_diverged_is_not_stuck_with_that() -> None:
    coding = Coding(Half(torch.bfloat16), 2, 2, FLOAT32, differs=True)
    rest, base = torch.zeros(2), np.ones(2, np.float32)
    assert np.isnan(coding.decode(coding.encode(np.array([np.nan, 1], np.float32), base, rest), base)[0])
    assert rest.tolist() == [0, 0]


def test_what_crosses_between_hosts_is_coded() -> None:
    """And stretches without anything that is trained are not."""
    spec = ParallelSpec(
        exchange=pb.ParallelParameter.ASGD, compression_param=CompressionSpec(pb.CompressionParameter.BF16)
    )
    coded = codings(spec, ["north", "north", "south"], 5, FLOAT32)
    assert coded(1, 0, slice(0, 7)) is None and coded(2, 0, slice(5, 7)) is None
    found = coded(2, 0, slice(3, 7))
    assert found is not None and (found.elements, found.trained, found.differs) == (4, 2, False)


@pytest.mark.parametrize(
    "exchange", ["AGWU", *(pytest.param(name, marks=pytest.mark.slow) for name in ("SGWU", "ASGD"))]
)
def test_runs_train_and_a_replay_of_one_is_the_same_to_the_last_bit(exchange: str) -> None:
    parallel = f"exchange: {exchange} {TOPK}"
    outer(3, parallel, "max_iter: 12")
    expected, record = weights(12), read_csv("small_run")
    # A quarter of the trained weights, with their places, is half of their bytes; what comes back is whole.
    assert all(0.4 < row.bytes_sent / row.bytes_received < 0.6 for row in record.nodes)
    Path("small_run").rename("first_run")
    outer(3, parallel, "max_iter: 12 snapshot_prefix: 'again'", replay="first_run/replay.jsonl")
    assert_equal(weights(12, "again"), expected)


def test_hardly_anything_is_lost_in_bfloat16() -> None:
    """One worker: nothing but its rounding keeps it from the run of one process."""
    alone()
    expected = weights()
    outer(2, f"exchange: AGWU {BF16} agwu_param {{ weigh_by_accuracy: false }}")
    assert_equal(weights(), expected, 0.02)
    assert any(
        not np.array_equal(mine, its)
        for n, blobs in weights().items()
        for mine, its in zip(blobs, expected[n], strict=True)
    )


@pytest.mark.slow
def test_parameter_servers_get_codes_of_their_parts() -> None:
    """A number's code does not depend on the others: the same bits as with one server; and workers of several ranks."""
    parallel = f"exchange: SGWU num_shards: 2 {BF16}"
    outer(5, parallel)
    expected = weights()
    outer(7, f"{parallel} servers: 2", "snapshot_prefix: 'apart'")
    assert_equal(weights(prefix="apart"), expected)
    record = read_csv("apart_run")
    assert all(row.bytes_received < row.bytes_sent for row in record.servers)
    assert sum(row.bytes_sent + row.bytes_received for row in record.servers) == record.bytes_counted()
