"""Marks of single cases among others of ``pytest.mark.parametrize``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def slow(*values: Any) -> Any:
    """A case that only ``make test-all`` runs: like others, but for the time that it takes."""
    return pytest.param(*values, marks=pytest.mark.slow)


def few(values: Iterable[Any], every: int) -> list[Any]:
    """Of many like cases one in ``every``, from the first on; the others are slow."""
    return [value if place % every == 0 else slow(value) for place, value in enumerate(values)]
