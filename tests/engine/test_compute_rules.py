"""Settings of the inner layer and of split layers: what is refused, and what has no effect, at which field."""

from __future__ import annotations

from pathlib import Path

import pytest

from bpt.engine.compute_rules import ignored_settings, violations, violations_on_gpu
from tests.support.rule_checks import solver


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ("parallel_param { num_shards: 2 }", []),
        ("debug_info: true", []),
        ("parallel_param { num_shards: 2 } debug_info: true", [("debug_info",)]),
        ("parallel_param { fc_param { pieces: 1 } inner_param { num_threads: 0 } }", []),
        ("parallel_param { fc_param { pieces: 0 } }", [("parallel_param", "fc_param", "pieces")]),
        ("parallel_param { inner_param { num_threads: -1 } }", [("parallel_param", "inner_param", "num_threads")]),
    ],
)
def test_what_is_refused(text: str, fields: list[tuple[str, ...]], tmp_path: Path) -> None:
    assert [violation.field for violation in violations(solver(tmp_path, text))] == fields


@pytest.mark.parametrize(("engine", "refused"), [("TASK_DAG", True), ("LIBRARY", False), ("AUTO", False)])
def test_what_a_gpu_cannot(engine: str, refused: bool, tmp_path: Path) -> None:
    plan = solver(tmp_path, f"parallel_param {{ inner_param {{ engine: {engine} }} }}")
    fields = [violation.field for violation in violations_on_gpu(plan)]
    assert fields == [("parallel_param", "inner_param", "engine")] * refused


@pytest.mark.parametrize(
    ("text", "on_gpu", "fields"),
    [
        ("fc_param { pieces: 2 }", False, ["fc_param"]),
        ("fc_param { pieces: 2 } num_shards: 2", False, []),
        ("num_shards: 1", False, []),
        ("inner_param { engine: AUTO }", False, []),
        ("inner_param { engine: AUTO }", True, ["inner_param"]),
        ("inner_param { engine: LIBRARY }", True, []),
    ],
)
def test_what_has_no_effect(text: str, on_gpu: bool, fields: list[str], tmp_path: Path) -> None:
    found = ignored_settings(solver(tmp_path, f"parallel_param {{ {text} }}"), on_gpu)
    assert [setting.field[1] for setting in found] == fields
