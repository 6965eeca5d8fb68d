"""The figure of a plan: what is drawn, and the files."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from bpt.base.errors import UsageError, UserError
from bpt.perf.planner.plan_figure import (
    FigureBar,
    bars,
    colour,
    draw,
    draw_convergence,
    draw_layers,
    draw_timeline,
)
from bpt.perf.planner.plan_layers import plan_solver
from bpt.perf.planner.plan_report import PlacementPlan
from bpt.train.outer.report.style import check_figure
from tests.support.near import near
from tests.support.plans import two_unlike

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@pytest.fixture
def plan(tmp_path: Path) -> PlacementPlan:
    return plan_solver(two_unlike(tmp_path))


@pytest.fixture
def axes() -> Axes:
    pytest.importorskip("matplotlib")
    from matplotlib.figure import Figure  # noqa: PLC0415

    return Figure().subplots()


def test_bars(plan: PlacementPlan) -> None:
    """As worked out in tests/perf/planner/test_plan_layers.py."""
    times = [
        (0, "F", "0", 0.0, 0.5), (0, "F", "1", 0.5, 1.0), (0, "B", "0", 2.5, 3.5), (0, "B", "1", 3.5, 4.5),
        (1, "F", "0", 0.5, 1.0), (1, "F", "1", 1.0, 1.5), (1, "B", "0", 1.5, 2.5), (1, "B", "1", 2.5, 3.5),
    ]  # fmt: skip
    found = list(bars(plan))
    assert [(bar.stage, bar.kind, bar.micro) for bar in found] == [time[:3] for time in times]
    assert [at for bar in found for at in (bar.start, bar.end)] == pytest.approx(
        [at for time in times for at in time[3:]]
    )


def test_an_update_is_a_bar(tmp_path: Path) -> None:
    """With its 6 s at speed 1, an iteration takes one device alone 6 s and the other one 18 s."""
    cluster = f"node {{ samples_per_second: {8 / 6} }} node {{ samples_per_second: {8 / 18} }}"
    found = list(bars(plan_solver(two_unlike(tmp_path, cluster=cluster, update=6.0))))
    assert found[4] == FigureBar(0, "U", "", near(4.5), near(6.5))


def test_layers_have_their_stages_colour(plan: PlacementPlan, axes: Axes) -> None:
    draw_layers(axes, plan)
    heights = [patch.get_height() for container in axes.containers for patch in container]
    assert heights == pytest.approx([0, 2000, 1000, 3000])
    assert [label.get_text() for label in axes.get_xticklabels()] == ["data", "conv", "ip", "loss"]
    legend = axes.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["0: fast, load 67%", "1: slow, load 67%"]


def test_the_timeline(plan: PlacementPlan, axes: Axes) -> None:
    draw_timeline(axes, plan)
    boxes = [patch for container in axes.containers for patch in container]
    assert len(boxes) == 8
    assert [text.get_text() for text in axes.texts] == ["0", "1", "0", "1"] * 2
    assert axes.get_xlim() == pytest.approx((0, 4500))
    assert axes.get_title() == "iteration 4,500 ms, bubble 33.3%"


def test_convergence(plan: PlacementPlan, axes: Axes) -> None:
    draw_convergence(axes, replace(plan, convergence=((0, 3.0), (1, 2.0), (2, 2.0)), objective="STEP_TIME"))
    assert np.array(axes.lines[0].get_xydata()).tolist() == [[0, 3], [1, 2], [2, 2]]
    assert axes.get_ylabel() == "STEP_TIME"


@pytest.mark.parametrize(("name", "start"), [("plan.png", b"\x89PNG"), ("plan.SVG", b"<?xml")])
def test_files(name: str, start: bytes, plan: PlacementPlan, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    curve = ((0, 3.0), (1, 2.0))
    path = draw(replace(plan, convergence=curve, objective="STEP_TIME"), str(tmp_path / name))
    assert path.read_bytes().startswith(start)


def test_other_kinds_of_files() -> None:
    with pytest.raises(UsageError, match=r"--figure plan\.pdf: writes files that end in \.png or \.svg"):
        check_figure("figure", "plan.pdf")


def test_without_matplotlib(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(UserError, match=r"pip install 'bpt\[plot\]'"):
        check_figure("figure", "plan.png")


def test_colours_repeat() -> None:
    assert len({colour(stage) for stage in range(7)}) == 7
    assert colour(7) == colour(0)
