"""The picture of the districts in docs/architecture.md shows the imports that there are."""

from __future__ import annotations

import re

from scripts import draw_districts


def test_the_picture_shows_the_imports_that_there_are() -> None:
    shown = re.findall(r"<title>(\w+) imports (\w+)</title>", draw_districts.PICTURE.read_text())
    assert set(shown) == set(draw_districts.imports()), "python scripts/draw_districts.py draws it anew"


def test_no_import_leads_upward() -> None:
    order = draw_districts.districts()
    assert [pair for pair in draw_districts.imports() if order.index(pair[0]) > order.index(pair[1])] == []


def test_a_box_for_each_district() -> None:
    drawn = draw_districts.picture(["cli", "base"], draw_districts.imports())
    assert re.findall(r'font-weight="bold">(\w+)<', drawn) == ["cli", "base"]
    assert "<title>cli imports base</title>" in drawn
    assert "base imports cli" not in drawn
