"""Numbers that equal those near them."""

from __future__ import annotations

from typing import cast

import pytest


def near(value: float, rel: float | None = None, abs: float | None = None) -> float:
    """``pytest.approx`` of a number, typed as a number, so that it can stand in a record that is compared."""
    return cast("float", pytest.approx(value, rel=rel, abs=abs))
