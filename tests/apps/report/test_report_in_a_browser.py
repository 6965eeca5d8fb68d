"""The page of results in a real browser: it is complete, nothing overlaps, and all of it can be read."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from bpt.cli.main import main
from tests.support.browser import Rendered, find_chromium, render
from tests.support.colours import contrast_of
from tests.support.report_inputs import WORDS, write_inputs

WIDTHS = (1280, 390)  # a notebook's window and a telephone's
SMALLEST = 9.0  # pixels of a letter's height
CONTRAST = 4.5  # WCAG 2.1, level AA

pytestmark = pytest.mark.xdist_group("browser")


@pytest.fixture(scope="module")
def rendered(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Rendered]:
    """The page in both schemes; the browser starts twice for all tests of this module."""
    pytest.importorskip("matplotlib")
    find_chromium()
    folder = tmp_path_factory.mktemp("report")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        write_inputs()
        assert main(list(WORDS)) == 0
    page = folder / "run.html"
    return {scheme: render(page, tmp_path_factory.mktemp(scheme), WIDTHS, scheme) for scheme in ("light", "dark")}


def every(rendered: dict[str, Rendered]) -> Iterator[tuple[str, dict[str, Any]]]:
    """What was measured, with words that say in which scheme and width."""
    for scheme, made in rendered.items():
        for width, measured in made.measured.items():
            assert measured["width"] == width
            yield f"{scheme}, {width} pixels wide", measured


def overlap(first: list[float], second: list[float]) -> bool:
    """Whether two boxes (left, top, right, bottom) have a common area of more than half a pixel a side."""
    return all(min(first[axis + 2], second[axis + 2]) - max(first[axis], second[axis]) > 0.5 for axis in range(2))


def test_nothing_fails_and_nothing_is_loaded(rendered: dict[str, Rendered]) -> None:
    for made in rendered.values():
        assert made.console == []
    for _, measured in every(rendered):
        assert [name for name in measured["requests"] if not name.startswith("data:")] == []
        assert measured["pictures"] and all(each["isWhole"] for each in measured["pictures"])


def test_every_chart_has_a_size_and_no_labels_overlap(rendered: dict[str, Rendered]) -> None:
    for where, measured in every(rendered):
        assert len(measured["charts"]) == 4 * 2 + 2  # quantities against iterations and seconds; timeline and drawing
        for chart in measured["charts"]:
            left, top, right, bottom = chart["box"]
            assert right - left > 200 and bottom - top > 50, (where, chart["name"])
            for one, other in itertools.combinations(chart["labels"], 2):
                assert not overlap(one["box"], other["box"]), (where, chart["name"], one["text"], other["text"])
            for label in chart["labels"]:
                assert left - 0.5 <= label["box"][0] and label["box"][2] <= right + 0.5, (where, label["text"])


def test_the_page_does_not_scroll_sideways(rendered: dict[str, Rendered]) -> None:
    for where, measured in every(rendered):
        assert measured["scrollWidth"] <= measured["width"], where
        out = [each["text"] for each in measured["texts"] if not each["scrolls"] and each["box"][2] > measured["width"]]
        assert out == [], where


def test_all_text_can_be_read(rendered: dict[str, Rendered]) -> None:
    for where, measured in every(rendered):
        assert len(measured["texts"]) > 100
        for each in measured["texts"]:
            assert contrast_of(each["colour"], each["behind"]) >= CONTRAST, (where, each)
            assert each["size"] >= SMALLEST, (where, each)


def test_light_and_dark(rendered: dict[str, Rendered]) -> None:
    for scheme, made in rendered.items():
        for measured in made.measured.values():
            assert measured["isDark"] == (scheme == "dark")
    (light, dark) = (
        {tuple(each["behind"]) for each in rendered[scheme].measured[1280]["texts"]} for scheme in rendered
    )
    assert (255, 255, 255) in light and min(map(sum, light)) > 3 * 100
    assert min(map(sum, dark)) < 3 * 50
    assert rendered["light"].picture.read_bytes() != rendered["dark"].picture.read_bytes()
