"""The collector rests while modules are imported, and what they brought is out of its sight."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from bpt.base.garbage_collection import freeze_objects, importing


@pytest.fixture(autouse=True)
def _as_it_was() -> Iterator[None]:
    gc.unfreeze()
    freeze_objects.cache_clear()
    yield
    gc.enable()
    gc.unfreeze()
    freeze_objects.cache_clear()


def test_it_rests_while_modules_are_imported() -> None:
    with importing():
        assert not gc.isenabled()
        assert not gc.get_freeze_count()
    assert gc.isenabled()
    assert gc.get_freeze_count() > 1000


def test_it_works_again_after_an_import_that_failed() -> None:
    with pytest.raises(ImportError), importing():
        raise ImportError
    assert gc.isenabled()
    assert not gc.get_freeze_count()


def test_a_second_command_of_the_process_changes_nothing() -> None:
    with importing():
        pass
    frozen = gc.get_freeze_count()
    kept: list[list[int]] = [[] for _ in range(100)]
    with importing():
        assert gc.isenabled()
    assert gc.get_freeze_count() <= frozen
    assert len(kept) == 100


def test_a_user_who_has_switched_it_off_keeps_it_off() -> None:
    gc.disable()
    with importing():
        pass
    assert not gc.isenabled()
    assert not gc.get_freeze_count()


def test_what_is_there_is_kept_once() -> None:
    freeze_objects()
    frozen = gc.get_freeze_count()
    kept: list[list[int]] = [[] for _ in range(100)]
    freeze_objects()
    assert gc.get_freeze_count() <= frozen
    assert len(kept) == 100
