"""All targets by name."""

from __future__ import annotations

from tests.fuzz.engine import Target
from tests.fuzz.targets import binary, foreign, forks, images, lists, nets, records, text

_FILES = (nets, text, binary, records, images, lists, forks, foreign)

TARGETS: dict[str, type[Target]] = {kind.name: kind for file in _FILES for kind in file.TARGETS}
