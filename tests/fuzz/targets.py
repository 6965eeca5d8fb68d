"""All targets by name."""

from __future__ import annotations

from tests.fuzz import (
    test_binary,
    test_foreign,
    test_forks,
    test_images,
    test_lists,
    test_nets,
    test_records,
    test_text,
)
from tests.fuzz.engine import Target

_FILES = (test_nets, test_text, test_binary, test_records, test_images, test_lists, test_forks, test_foreign)

TARGETS: dict[str, type[Target]] = {kind.name: kind for file in _FILES for kind in file.TARGETS}
