"""Where the files stand that tests read."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROTOTXT = ROOT / "prototxt"
TESTS = ROOT / "tests"
GOLDEN = TESTS / "golden"
