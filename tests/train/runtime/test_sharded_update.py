"""Runs whose update is divided among the ranks: those of one process, in their snapshots as well."""

from __future__ import annotations

import pytest

from bpt.train.solver.solver import Solver
from tests.support import spread_runs
from tests.support.marks import slow
from tests.support.spread_runs import Saved

pytestmark = pytest.mark.usefixtures("folder")

SHARDED = "update: SHARDED"
RING = "exchange: RING update: SHARDED"
CGDP = "exchange: CGDP cgdp_param { chunk_size: 1 } update: "
OVER_BATCH = "pipeline_param { batch_norm_over: BATCH }"
ADAM = 'type: "Adam" momentum2: 0.99 base_lr: 0.01 clip_gradients: -1'


@pytest.mark.parametrize(
    ("ranks", "parallel", "solver", "hosts"),
    [
        (3, SHARDED, "", None),
        slow(4, f"{RING} num_shards: 2", ADAM, None),
        slow(4, f"{SHARDED} num_stages: 2 {OVER_BATCH}", "", None),
        slow(3, f"{SHARDED} replica {{ ranks: 1 }} replica {{ ranks: 2 num_stages: 2 }} {OVER_BATCH}", ADAM, None),
        slow(7, SHARDED, ADAM, None),  # a rank without samples
        slow(2, "update: HOST", ADAM, None),
        slow(3, "update: HOST exchange: RING", "", None),
        slow(3, f"{CGDP} SHARDED", "", None),
        (3, f"{CGDP} HOST", ADAM, ["a", "b", "a"]),  # the hosts' ranks in turn, one with two and one with one
        slow(4, f"{CGDP} SHARDED", "", ["a", "b", "a", "b"]),
        slow(2, f"{CGDP} HOST", "", ["a", "b"]),
        slow(2, "exchange: CGDP cgdp_param { interval: 1 } update: HOST", ADAM, None),  # chunks are searched
    ],
)
def test_the_run_of_one_process(ranks: int, parallel: str, solver: str, hosts: list[str] | None) -> None:
    """With two passes an iteration, and tests and snapshots in between, which go on either way."""
    texts = (f"parallel_param {{ {parallel} }}", solver)
    expected = spread_runs.train(1, "snapshot: 5", solver)
    before, end = Saved.read(5), Saved.read(9)
    spread_runs.train(ranks, *texts, resume="small_iter_5.solverstate", hosts=hosts)
    Saved.read(9).check(end)
    spread_runs.remove_snapshots()
    run = spread_runs.train(ranks, "snapshot: 5", *texts, hosts=hosts)
    spread_runs.assert_same_lines(run.lines, expected.lines)
    Saved.read(5).check(before)
    Saved.read(9).check(end)


def test_a_resumed_run_has_the_same_bits() -> None:
    spread_runs.check_goes_on_bit_for_bit(2, f"parallel_param {{ {SHARDED} }} snapshot_format: HDF5")


@pytest.mark.parametrize("ranks", [2, 4])
def test_moments_are_divided_by_the_ranks(ranks: int) -> None:
    """All of "conv", "fc" and "ip", each to one element; the statistics of "bn", 4 + 4 + 1, are on all ranks."""
    sizes: list[int] = []

    def note(solver: Solver) -> None:
        rule = solver.runtime.updater.rule
        own = [tensor.numel() for tensor, p in zip(rule.history, rule.parameters * 2, strict=True) if p.elements]
        whole = sum(p.numel() for p in solver.net.parameters() if p.requires_grad)
        assert sum(own) <= 2 * (whole / ranks + len(own) / 2)
        assert sum(tensor.numel() for tensor in rule.history) - sum(own) == 2 * 9
        sizes.append(sum(own) // 2)

    spread_runs.train(ranks, f"parallel_param {{ {SHARDED} }} max_iter: 1", ADAM, each=note)
    assert sum(sizes) == 4 * 2 * 9 + 7 * 64 + 7 + 3 * 7 + 3
