"""The picture of an explanation, by its pixels."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from bpt.errors import WriteError
from bpt.explain.explain_figure import Panel, draw


def panel(back: np.ndarray, heat: np.ndarray) -> Panel:
    return Panel("plane", back, heat, (0.0, 4.0, 0.0, 4.0), ("to the right", "up"), (1.0, 3.0), (0.0, 1.0))


def pixels(path: Path) -> np.ndarray:
    with Image.open(path) as image:
        return np.asarray(image.convert("RGB")).astype(int)


def coloured(path: Path) -> int:
    """Pixels of the planes, so without the scale beside them, that are strongly coloured."""
    image = pixels(path)
    image = image[:, : int(image.shape[1] * 0.8)]
    return int(((image.max(2) - image.min(2)) > 100).sum())


def test_without_heat_the_plane_is_grey(tmp_path: Path) -> None:
    back = np.full((4, 4), 0.5)
    draw(tmp_path / "cold.png", r"no $\formula$", [panel(back, np.zeros((4, 4), np.float32))])
    heat = np.zeros((4, 4), np.float32)
    heat[3, 1] = 0.8
    draw(tmp_path / "warm.png", r"no $\formula$", [panel(back, heat)])
    cold, warm = pixels(tmp_path / "cold.png"), pixels(tmp_path / "warm.png")
    assert coloured(tmp_path / "cold.png") < 1000  # the lines through the maximum
    assert coloured(tmp_path / "warm.png") > 10_000
    # Row 3 is the uppermost of an origin below, column 1 the second from the left.
    rows, columns, _ = np.nonzero(abs(cold - warm) > 50)
    height, width, _ = cold.shape
    assert rows.max() < 0.4 * height
    assert columns.max() < 0.55 * width
    assert columns.min() > 0.3 * width


def test_three_planes_are_wide(tmp_path: Path) -> None:
    colours = np.zeros((4, 4, 3))
    plane = panel(colours, np.eye(4, dtype=np.float32))
    draw(tmp_path / "three.png", "", [plane] * 3)
    height, width, _ = pixels(tmp_path / "three.png").shape
    assert width > 2 * height


def test_no_folder(tmp_path: Path) -> None:
    with pytest.raises(WriteError, match="there is no folder"):
        draw(tmp_path / "no" / "x.png", "", [panel(np.zeros((4, 4)), np.zeros((4, 4), np.float32))])
