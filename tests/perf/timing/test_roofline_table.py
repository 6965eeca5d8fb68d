"""The lines and the picture of the roofline, from times and roofs that the test gives."""

from __future__ import annotations

from pathlib import Path

import pytest

from bpt.base.errors import UsageError, UserError
from bpt.perf.timing.layer_times import LayerTimes, PassTimes, RepetitionTimes
from bpt.perf.timing.peaks import Peak, Peaks
from bpt.perf.timing.roofline import Itemsizes, points
from bpt.perf.timing.roofline_figure import draw_roofline
from bpt.perf.timing.roofline_table import roof_lines, roofline_lines
from bpt.train.outer.report.style import check_figure
from tests.perf.timing.roofline_cases import NET, PEAKS
from tests.support.figures import texts
from tests.support.golden_cases import graph_of


def ms(value: float) -> RepetitionTimes:
    return RepetitionTimes((value / 1e3,))


def lines() -> list[str]:
    graph = graph_of(NET)
    took = {"ip": (0.0264, 0.0528), "relu": (0.0004, 0.0)}
    layers = [LayerTimes(node, *map(ms, took.get(node.name, (0.001, 0.001)))) for node in graph.nodes]
    passes = PassTimes(ms(0.02), ms(0.05), ms(0.07), None)
    return list(
        roofline_lines(
            points(graph, layers, Itemsizes.all(graph, 4), PEAKS), PEAKS, passes, "FLOAT32", "2 threads", ["in"]
        )
    )


def row(name: str, direction: str) -> list[str]:
    [found] = [line.split() for line in lines() if line.startswith(f"{name} ") and f" {direction} " in line]
    return found


def test_a_layers_row() -> None:
    # Half the roof's speed: 132 operations in 26.4 µs, 5 million a second; 200 bytes are 7.58 million.
    assert row("ip", "forward") == [
        "ip", "InnerProduct", "forward", "compute", "0.026", "0.013", "0.013", "50.0%", "16.4%", "0.0", "0.01", "0.66",
    ]  # fmt: skip
    # Nothing in front is trained: the weights' diffs are as much work as forward; a quarter of the roof's speed.
    assert row("ip", "backward")[4:8] == ["0.053", "0.013", "0.040", "25.0%"]


def test_above_the_roof_is_shown_as_it_is() -> None:
    # 24 floats are 96 bytes: 0.96 µs at the roof, 12 operations 1.2 µs; measured 0.4 µs.
    assert row("relu", "forward")[3:8] == ["compute", "0.000", "0.001", "-0.001", "300.0%"]


def test_a_time_too_short_for_the_clock_has_no_speed() -> None:
    # 12 operations at 10 million a second: 1.2 µs; three times 12 floats, 144 bytes: 1.44 µs.
    assert row("relu", "backward")[3:] == ["memory", "0.000", "0.001", "-0.001", "-1.8%", "0.08"]


def test_what_takes_most_comes_first_and_nothing_has_no_roof() -> None:
    table = lines()[5:]
    assert table[0].split()[:6] == ["layer", "type", "pass", "roof", "ms", "at"]
    assert [line.split()[0] for line in table[1:3]] == ["ip", "ip"]
    assert row("end", "forward")[3] == "none"


def test_the_net_as_a_whole() -> None:
    sums = {line.split("  ")[0]: line.split()[-6:] for line in lines() if "whole net" in line or "sum of" in line}
    # forward: 13.2 + 1.2 µs of 26.4 + 0.4 + 1 µs, of 20 µs. backward: 13.2 + 1.44 of 52.8, of 50.
    assert sums["forward, sum of layers"][:4] == ["0.028", "0.014", "0.013", "51.8%"]
    assert sums["forward, whole net"][:4] == ["0.020", "0.014", "0.006", "72.0%"]
    assert sums["backward, sum of layers"][:4] == ["0.053", "0.015", "0.038", "27.7%"]
    assert sums["both, whole net"][:4] == ["0.070", "0.029", "0.041", "41.5%"]  # 29.04 / 70


def test_the_roofs_and_what_is_left_out() -> None:
    text = lines()
    assert text[0] == "Roofline of FLOAT32, 2 threads:"
    assert text[1] == "Compute roof: 0.0 ± 0.0 GFLOP/s, product of 8 × 8 matrices."
    assert text[2] == "Memory roof: 0.10 ± 0.00 GB/s, triad of arrays of 1 MiB."
    assert text[3] == "They meet at 0.10 FLOP/byte."
    assert text[-1] == "in: left out, since these roofs do not bound reading and drawing."


def test_a_roof_that_moves_is_told() -> None:
    moved = Peaks(Peak("p", ((4.0,), (3.0,))), Peak("t", ((1.0,), (1.05,))))
    assert [line for line in roof_lines(moved) if "varies" in line] == [
        "The compute roof varies (± 0%, and -25% from before the layers to after them): other programs "
        "run here, or the clock changes. Repeat the timing on an idle machine."
    ]


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
