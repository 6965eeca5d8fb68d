"""Graphs to lay out."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import strategies as st

from bpt.apps.draw.net_layout import LayoutLink


def chain(*boxes: int) -> list[LayoutLink]:
    return [LayoutLink(a, b, f"b{a}") for a, b in pairwise(boxes)]


@st.composite
def graphs(draw: st.DrawFn) -> tuple[int, list[LayoutLink]]:
    boxes = draw(st.integers(1, 12))
    pairs = draw(st.lists(st.tuples(st.integers(0, boxes - 1), st.integers(0, boxes - 1)), max_size=20))
    return boxes, [LayoutLink(min(pair), max(pair), f"b{min(pair)}") for pair in pairs if pair[0] != pair[1]]
