"""What a divided update does not go with."""

from __future__ import annotations

import pytest

from bpt.train.rules.violations import violations
from tests.support.training import solver_of

SOLVER = 'base_lr: 0.1 lr_policy: "fixed" max_iter: 1 '


@pytest.mark.parametrize(
    ("parallel", "solver", "field"),
    [
        ("exchange: TREE", "", "update"),
        ("exchange: LOCAL", "", "update"),
        ("exchange: AGWU", "", "update"),
        ("compression_param { codec: TOPK }", "", "update"),
        ("transport: TORCH_DISTRIBUTED", "", "update"),
        ("num_stages: 2 pipeline_param { schedule: DELAYED }", "", "update"),
        ("", "debug_info: true", "debug_info"),
        ("", "snapshot_diff: true", "snapshot_diff"),
    ],
)
@pytest.mark.parametrize("update", ["SHARDED", "HOST"])
def test_what_is_refused(parallel: str, solver: str, field: str, update: str) -> None:
    text = f"{SOLVER}{solver} parallel_param {{ {parallel} }}"
    assert not list(violations(solver_of(text)))
    (found,) = violations(solver_of(text, f"parallel_param {{ update: {update} }}"))
    assert found.field[-1] == field
    assert update in found.words


@pytest.mark.parametrize("exchange", ["ALLREDUCE", "RING", "CGDP"])
@pytest.mark.parametrize("topology", ["", "num_stages: 2", "num_shards: 2"])
def test_what_goes_together(exchange: str, topology: str) -> None:
    text = f"{SOLVER} clip_gradients: 1 parallel_param {{ exchange: {exchange} update: HOST {topology} }}"
    assert not list(violations(solver_of(text)))
