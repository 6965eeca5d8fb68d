"""The summary of a network file; numbers are worked out in tests/tools/test_net_summary.py."""

from __future__ import annotations

import pytest

from bpt.apps.commands.net_summary import summarize
from tests.support.paths import PROTOTXT


@pytest.mark.parametrize(
    ("name", "parameters", "flops"),
    [("alexnet", 60_965_224, 1.46e9), ("googlenet", 6_998_552, 3.19e9), ("vgg16", 138_357_544, 31.0e9)],
)
def test_the_numbers_of_the_guide(name: str, parameters: int, flops: float) -> None:
    """Those of docs/networks.md."""
    summary, notes = summarize(str(PROTOTXT / name / "deploy.prototxt"), "TEST", batch=1)
    assert (summary.parameters, notes) == (parameters, ())
    assert summary.flops == pytest.approx(flops, rel=5e-3)
    four, _ = summarize(str(PROTOTXT / name / "deploy.prototxt"), "TEST", batch=4)
    assert (four.flops, four.activations) == (4 * summary.flops, 4 * summary.activations)
