"""The search for a plan: what it may choose, and what a text keeps."""

from __future__ import annotations

from pathlib import Path

import pytest

from bpt.config.plan.chosen import text_of
from bpt.perf.forecast.search import search
from tests.support.small_forecasts import BYTES, nodes, small

FAST_LINKS = 2 * BYTES


def found(folder: Path, update_seconds: float, text: str = "") -> dict[str, float]:
    """The best plans on two equal nodes, by their texts, with their seconds."""
    plan, costs = small(folder, text)
    cluster = nodes(2, 2, bandwidth=FAST_LINKS, update=update_seconds)
    return {text_of(each.plan): each.seconds for each in search(plan, costs, cluster, top=3).best}


def test_an_update_is_divided_where_that_is_faster(tmp_path: Path) -> None:
    times = found(tmp_path, update_seconds=0.5)
    divided, whole = list(times)[:2]
    assert divided == "parallel_param { exchange: CGDP update: SHARDED }"
    assert whole == "parallel_param { exchange: CGDP }"
    # Each of two ranks updates half of the parameters.
    assert times[whole] - times[divided] == pytest.approx(0.5 / 2)


def test_an_update_stays_whole_where_nothing_is_gained(tmp_path: Path) -> None:
    times = found(tmp_path, update_seconds=0)
    whole, divided = list(times)[:2]
    assert (whole, divided) == (
        "parallel_param { exchange: CGDP }",
        "parallel_param { exchange: CGDP update: SHARDED }",
    )
    assert times[whole] == pytest.approx(times[divided])


def test_a_text_keeps_its_update(tmp_path: Path) -> None:
    times = found(tmp_path, 0.5, "parallel_param { update: REPLICATED }")
    assert not any("SHARDED" in text for text in times)
