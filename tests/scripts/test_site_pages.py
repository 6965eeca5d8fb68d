"""The site has every guide once, in the order of docs/README.md, and links that lead where they lead on GitHub."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.site_pages import ROOT, packages, place, sections, target, turned


def test_every_guide_stands_in_one_section() -> None:
    found = [
        uri
        for section in sections((ROOT / "docs" / "README.md").read_text())
        for uris in section.values()
        for uri in uris
    ]
    guides = {path.name for path in (ROOT / "docs").glob("*.md")} - {"README.md"}
    assert len(found) == len(set(found))
    assert set(found) == guides | {"contributing.md", "changes.md"}


def test_sections_go_by_headings_and_leave_out_what_was_linked_before() -> None:
    index = "# Guides\n\n## One\n\n[a](data.md), [b](caffe.md#x)\n\n## Two\n\n[c](data.md) [d](../CHANGELOG.md)\n"
    assert sections(index) == [{"One": ["data.md", "caffe.md"]}, {"Two": ["changes.md"]}]


def test_links_between_pages() -> None:
    text = "[a](docs/data.md#x) [b](LICENSE) [c](https://x.org/a) `blobs[0](x)` [d](#y)"
    expected = "[a](data.md#x) [b](repository/LICENSE.txt) [c](https://x.org/a) `blobs[0](x)` [d](#y)"
    assert turned(text, "README.md", "index.md") == expected
    assert turned("[a](../README.md) [b](README.md)", "docs/data.md", "data.md") == "[a](index.md) [b](guides.md)"
    assert (target("docs/data.md", "nowhere.md"), place("docs/data.md")) == (None, "data.md")


def test_the_reference_has_packages_and_modules() -> None:
    assert {"bpt.nn", "bpt.caffe", "bpt.engine"} <= set(packages())
    assert "bpt.__main__" not in packages()


@pytest.mark.slow
def test_the_site_is_built_without_warnings(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs", reason="the extra docs is not installed")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "get_solver" in (tmp_path / "api" / "bpt.html").read_text()
