"""``scripts/bench``: what holds of all benches."""

from __future__ import annotations

import argparse
import runpy
import sys

import pytest

from scripts.benches import loop
from scripts.benches.harness.launch import ROOT


def test_ctrl_c_ends_a_bench_without_a_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(arguments: argparse.Namespace) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(loop, "run", interrupted)
    monkeypatch.setattr(sys, "argv", ["bench", "loop"])
    with pytest.raises(SystemExit) as caught:
        runpy.run_path(str(ROOT / "scripts" / "bench"), run_name="__main__")
    assert caught.value.code == "error: interrupted"  # printed, with the status 1
