"""The page of what combines with what is up to date, and says what the rules say."""

from __future__ import annotations

import pytest

from bpt.train.rules.combinations import Combination, has_effect, page, plan_of_setting
from tests.support.paths import ROOT

PAGE = ROOT / "docs/combinations.md"


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text() == page(), "make combinations"


def test_a_row() -> None:
    (row,) = (line for line in page().splitlines() if line.startswith("| RING | UNIFORM |"))
    assert row.split(" | ")[2:5] == ["✓"] * 3


@pytest.mark.parametrize(
    ("combination", "reason"),
    [
        (Combination("ALLREDUCE"), ""),
        (Combination("ALLREDUCE", "STATIC"), ""),
        (Combination("AGWU", "IDPA", "stages", "TASK_DAG"), ""),
        (Combination("TREE", "IDPA"), "balance: IDPA divides the data set among the workers of exchange: SGWU"),
        (
            Combination("AGWU", "STATIC"),
            "balance: STATIC divides the batches of a synchronous exchange; exchange: AGWU",
        ),
        (Combination("TREE", topology="stages", schedule="DELAYED"), "schedule: DELAYED goes with exchange: "),
    ],
)
def test_reasons(combination: Combination, reason: str) -> None:
    found = combination.violation.words if combination.violation else ""
    assert found.startswith(reason) and bool(found) == bool(reason)


@pytest.mark.parametrize(
    ("setting", "exchange", "effect"),
    [
        ("outer_param { type: NESTEROV }", "RING", False),
        ("outer_param { type: NESTEROV }", "LOCAL", True),
        ("balance_param { by: ITERATION }", "TREE", False),
        ("fc_param { pieces: 2 }", "TREE", True),
    ],
)
def test_settings_without_effect(setting: str, exchange: str, effect: bool) -> None:
    assert has_effect(setting, plan_of_setting(setting, exchange)) is effect
