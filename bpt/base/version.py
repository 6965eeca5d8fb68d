"""The version of bpt, and the folder of its package."""

from __future__ import annotations

from pathlib import Path

VERSION = "1.1.0"
PACKAGE = Path(__file__).resolve().parents[1]
