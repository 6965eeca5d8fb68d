"""In which fields two messages differ."""

from __future__ import annotations

import pytest
from google.protobuf import text_format

from bpt.config.proto import bpt_pb2 as pb
from bpt.config.proto.fields import different_fields


@pytest.mark.parametrize(
    ("was", "now", "fields"),
    [
        ("max_iter: 5", "max_iter: 5", []),
        ("", "iter_size: 1", []),  # that is its default
        ("max_iter: 5 base_lr: 0.1", "base_lr: 0.25", ["base_lr (0.1, now 0.25)", "max_iter (5, now 0)"]),
        ("solver_mode: CPU", "solver_mode: GPU", ["solver_mode (CPU, now GPU)"]),
        ("test_iter: 5", "test_iter: 5 test_iter: 6", ["test_iter ([5], now [5, 6])"]),
        ("type: 'SGD'", "type: 'Adam' debug_info: true", ["debug_info (false, now true)", 'type ("SGD", now "Adam")']),
        ("weights: 'a'", f"weights: '{'b' * 80}'", ["weights"]),  # nobody wants to read that
        (
            "parallel_param { agwu_param { push: 1 } num_shards: 2 }",
            "parallel_param { agwu_param { push: 3 } }",
            ["parallel_param { num_shards (2, now 1) }", "parallel_param { agwu_param { push (1, now 3) } }"],
        ),
    ],
)
def test_what_differs(was: str, now: str, fields: list[str]) -> None:
    messages = [text_format.Parse(text, pb.SolverParameter()) for text in (was, now)]
    assert sorted(different_fields(*messages)) == sorted(fields)
