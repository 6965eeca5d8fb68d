"""What balance combines with."""

from __future__ import annotations

from pathlib import Path

import pytest

from bpt.parallel.balance.balance_rules import violations
from tests.support.small_solver import small_solver

BY = "parallel_param", "balance_param", "by"


@pytest.mark.parametrize(
    ("parallel", "field"),
    [
        ("balance: DYNAMIC balance_param { by: ITERATION }", None),
        ("balance: DYNAMIC num_shards: 2", None),
        ("balance: DYNAMIC num_stages: 2 balance_param { by: ITERATION }", BY),
        ("balance: DYNAMIC update: SHARDED balance_param { by: ITERATION }", BY),
        (
            "balance: DYNAMIC replica { ranks: 1 } replica { ranks: 2 num_stages: 2 } balance_param { by: ITERATION }",
            BY,
        ),
        ("balance: DYNAMIC num_shards: 2 balance_param { by: ITERATION }", BY),
        ("num_shards: 2 balance_param { by: ITERATION }", None),
    ],
)
def test_by_iteration(tmp_path: Path, parallel: str, field: tuple[str, ...] | None) -> None:
    plan = small_solver(tmp_path, f"parallel_param {{ {parallel} }}")
    assert [violation.field for violation in violations(plan)] == ([field] if field else [])
