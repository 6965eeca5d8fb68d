"""Where the files recorded from a real Caffe are."""

from __future__ import annotations

from tests.support.paths import GOLDEN

INPUTS = GOLDEN / "cli" / "inputs"
UPGRADE = GOLDEN / "snapshots" / "upgrade"
