"""Which settings go with ``transport: TORCH_DISTRIBUTED``, and under which launcher."""

from __future__ import annotations

from pathlib import Path

import pytest

from bpt.parallel.exchange.exchange_rules import can_sum_by_torch, violations_of_launcher
from bpt.train.rules.violations import violations
from tests.support.rule_checks import solver

TRANSPORT = ("parallel_param", "transport")


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ("", ""),
        ("exchange: RING num_stages: 2 num_shards: 2 balance: DYNAMIC", ""),
        ("exchange: TREE", "exchange: TREE sums them on one rank"),
        ("exchange: CGDP", "exchange: CGDP sums them in memory that the ranks of a host share"),
        ("exchange: LOCAL", "exchange: LOCAL averages weights"),
        ("exchange: AGWU", "under exchange: AGWU workers submit weights one by one"),
        ("compression_param { codec: TOPK }", "codec: TOPK makes others of them"),
        ("fault_param { spares: 1 }", "spares and copies have no use"),
        ("fault_param { copies: 1 }", "spares and copies have no use"),
    ],
)
def test_what_torch_distributed_cannot_do_is_refused_with_a_remedy(more: str, reason: str, tmp_path: Path) -> None:
    plan = solver(tmp_path, f"parallel_param {{ transport: TORCH_DISTRIBUTED {more} }}")
    found = violations(plan)
    assert [violation.field for violation in found] == [TRANSPORT] * bool(reason)
    assert all(reason in violation.words and "leave out" in violation.remedy for violation in found)


@pytest.mark.parametrize(
    ("more", "by_torch", "tolerant", "reason"),
    [
        ("", True, False, ""),
        ("transport: TORCH_DISTRIBUTED", True, False, ""),
        ("transport: TORCH_DISTRIBUTED", False, False, ""),
        ("transport: MPI", False, True, ""),
        ("transport: MPI", True, False, "torchrun has started the ranks"),
        ("transport: TORCH_DISTRIBUTED", False, True, "mpirun --with-ft ulfm lets the others continue"),
        ("transport: TORCH_DISTRIBUTED fault_param { on_loss: STOP }", False, True, ""),
    ],
)
def test_launchers(more: str, by_torch: bool, tolerant: bool, reason: str, tmp_path: Path) -> None:
    plan = solver(tmp_path, f"parallel_param {{ {more} }}")
    found = list(violations_of_launcher(plan, by_torch, tolerant))
    assert [violation.field for violation in found] == [TRANSPORT] * bool(reason)
    assert all(reason in violation.words and violation.remedy for violation in found)


@pytest.mark.parametrize(
    ("more", "can"),
    [
        ("", True),
        ("exchange: RING", True),
        ("exchange: TREE", False),
        ("exchange: SGWU", False),
        ("compression_param { codec: BF16 }", False),
    ],
)
def test_ranks_of_torchrun_sum_by_torch_where_that_can_be(more: str, can: bool, tmp_path: Path) -> None:
    assert can_sum_by_torch(solver(tmp_path, f"parallel_param {{ {more} }}")) == can
