"""Files that are something else: what other programs write, given as weights, states, means, lists and texts."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz.engine import Target, run_cases
from tests.fuzz.targets.foreign import TARGETS


@pytest.mark.parametrize("kind", TARGETS, ids=lambda kind: kind.name)
def test_foreign_files_are_refused(kind: type[Target], tmp_path: Path) -> None:
    run_cases(kind(tmp_path), 1, range(kind.short))
