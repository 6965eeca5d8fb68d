"""The page of fixed inputs has the committed structure; ``BPT_RENEW=1`` writes it anew."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.commands import Bpt
from tests.support.golden_text import check_golden, outline
from tests.support.report_inputs import WORDS, write_inputs

PAGE = Path(__file__).parent / "golden_page.txt"


def test_the_page_of_fixed_inputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bpt: Bpt) -> None:
    pytest.importorskip("matplotlib")
    monkeypatch.chdir(tmp_path)
    write_inputs()
    assert bpt(*WORDS).status == 0
    check_golden(PAGE, outline(Path("run.html").read_text(encoding="utf-8")))
