"""Colours of curves, bars and figures: readers with each kind of colour blindness tell any two apart."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest

from bpt.apps.report import curve_chart, timeline_section
from bpt.train.outer.report import style
from tests.support.colours import MACHADO, Rgb, contrast_of, distance, lab, linear, seen_with

LEAST = 10.0  # CIEDE2000; 1 is a just noticeable difference of two large areas side by side, these are thin lines
PALETTES = {
    "curves": curve_chart.COLOURS,
    "timeline": tuple(timeline_section.COLOURS.values()),
    "figures": style.COLOURS,
}


@pytest.mark.parametrize("kind", ["", *MACHADO])
@pytest.mark.parametrize("palette", PALETTES.values(), ids=list(PALETTES))
def test_any_two_colours_differ(palette: Sequence[str], kind: str) -> None:
    seen = {colour: lab(seen_with(linear(colour), kind) if kind else linear(colour)) for colour in palette}
    assert len(seen) == len(palette)
    for one, other in itertools.combinations(palette, 2):
        assert distance(seen[one], seen[other]) >= LEAST, (one, other)


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ((50.0, 2.6772, -79.7751), (50.0, 0.0, -82.7485), 2.0425),
        ((50.0, 2.5, 0.0), (73.0, 25.0, -18.0), 27.1492),
        ((50.0, -0.001, 2.49), (50.0, 0.0011, -2.49), 4.7461),
        ((2.0776, 0.0795, -1.135), (0.9033, -0.0636, -0.5514), 0.9082),
    ],
)
def test_distances_of_the_published_pairs(first: Rgb, second: Rgb, expected: float) -> None:
    """Rows of Table 1 of Sharma, Wu and Dalal, 2005."""
    assert distance(first, second) == pytest.approx(expected, abs=5e-5)


def test_contrasts_of_known_pairs() -> None:
    assert contrast_of((0, 0, 0), (255, 255, 255)) == pytest.approx(21)
    assert contrast_of((119, 119, 119), (255, 255, 255)) == pytest.approx(4.478, abs=5e-4)  # #777, WCAG's example
