"""Where the files recorded from a real Caffe are."""

from __future__ import annotations

from pathlib import Path

GOLDEN = Path(__file__).parents[1] / "golden"
INPUTS = GOLDEN / "cli" / "inputs"
UPGRADE = GOLDEN / "snapshots" / "upgrade"
