"""Ending: what is closed, in which order, and how after a failure."""

from __future__ import annotations

import pytest

from bpt.train.runtime.cleanup import CleanupStack


@pytest.mark.parametrize("failed", [False, True])
def test_the_last_is_closed_first_and_each_once(failed: bool) -> None:
    ending = CleanupStack()
    closed: list[object] = []
    ending.add(lambda failed: closed.append(("together", failed)))
    ending.add_own(lambda: closed.append("own"))
    for _ in range(2):
        ending.close(failed)
    assert closed == ["own", ("together", failed)]


def test_what_fails_lets_the_rest_be_closed_as_after_a_failure() -> None:
    ending, closed = CleanupStack(), []
    for name in ("first", "second"):
        ending.add(lambda failed, name=name: closed.append((name, failed)))  # type: ignore[misc]
    ending.add_own(lambda: 1 // 0)
    ending.add(lambda failed: closed.append(("last", failed)))
    with pytest.raises(ZeroDivisionError):
        ending.close()
    assert closed == [("last", False), ("second", True), ("first", True)]
