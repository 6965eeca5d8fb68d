"""The picture of the roofline."""

from __future__ import annotations

from pathlib import Path

import pytest

from bpt.base.errors import UsageError, UserError
from bpt.perf.timing.layer_times import LayerTimes, RepetitionTimes
from bpt.perf.timing.roofline import Itemsizes, points
from bpt.perf.timing.roofline_figure import draw_roofline
from bpt.train.outer.report.style import check_figure
from tests.perf.timing.roofline_cases import NET, PEAKS
from tests.support.figures import texts
from tests.support.golden_cases import graph_of


def test_the_picture_names_the_layers_and_the_roofs(tmp_path: Path) -> None:
    graph = graph_of(NET.replace('"ip"', '"i$p$"'))
    layers = [LayerTimes(node, RepetitionTimes((0.1,)), RepetitionTimes((0.2,))) for node in graph.nodes]
    path = draw_roofline(points(graph, layers, Itemsizes.all(graph, 4), PEAKS), PEAKS, "A net", str(tmp_path / "a.svg"))
    found = texts(path)
    assert {"A net", "i$p$ backward  2", "forward", "backward", "GFLOP/s", "1", "2"} <= set(found)
    assert "roofs: 0.0 GFLOP/s, 0.1 GB/s" in found


def test_nothing_that_computes_is_drawn_too(tmp_path: Path) -> None:
    assert draw_roofline([], PEAKS, "", str(tmp_path / "a.png")).read_bytes().startswith(b"\x89PNG")


def test_where_pictures_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        check_figure("roofline", "net.prototxt")
    assert str(caught.value) == "--roofline net.prototxt: writes files that end in .png or .svg"
    with pytest.raises(UserError):
        check_figure("roofline", str(tmp_path / "none" / "a.png"))
