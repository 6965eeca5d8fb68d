from __future__ import annotations

import pytest

from bpt.balance.network import work_digest
from tests.golden_cases import graph_of

NET = """
name: "small"
layer { name: "data" type: "DummyData" top: "x" top: "y"
        dummy_data_param { shape { dim: 4 dim: 5 } shape { dim: 4 } } }
layer { name: "ip" type: "InnerProduct" bottom: "x" top: "ip" inner_product_param { num_output: 3 } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "y" top: "loss" }
"""


def digest(old: str = "", new: str = "") -> str:
    assert old in NET
    return work_digest(graph_of(NET.replace(old, new) if old else NET))


def test_the_batch_size_is_no_part_of_the_work() -> None:
    assert digest("dim: 4", "dim: 9") == digest()
    assert len(digest()) == 32


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("dim: 5", "dim: 6"),
        ("num_output: 3", "num_output: 4"),
        ('name: "ip" type', 'name: "ip" param { lr_mult: 0 } type'),
        ('layer { name: "loss"', 'layer { name: "relu" type: "ReLU" bottom: "ip" top: "ip" } layer { name: "loss"'),
    ],
)
def test_whatever_else_is(old: str, new: str) -> None:
    assert digest(old, new) != digest()
