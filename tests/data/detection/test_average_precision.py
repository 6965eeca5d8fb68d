"""Average precision, worked by hand: of four objects three are found, in places 1, 3 and 4 of five."""

from __future__ import annotations

import numpy as np
import pytest

from bpt.data.detection.average_precision import AP_VERSIONS, average_precision, precision_and_recall

SCORES = np.array([0.5, 0.9, 0.7, 0.8, 0.6])
RIGHT = np.array([0.0, 1, 1, 0, 1])
ROWS = np.stack((SCORES, RIGHT, 1 - RIGHT), 1)


def test_precision_and_recall_go_by_falling_score() -> None:
    precision, recall = precision_and_recall(SCORES, RIGHT, 1 - RIGHT, 4)
    np.testing.assert_allclose(precision, [1, 1 / 2, 2 / 3, 3 / 4, 3 / 5])
    np.testing.assert_allclose(recall, [1 / 4, 1 / 4, 2 / 4, 3 / 4, 3 / 4])


@pytest.mark.parametrize(
    ("version", "wanted"),
    [
        ("11point", (3 * 1 + 5 * 3 / 4) / 11),  # recalls 0, 0.1, 0.2; then 0.3 … 0.7; 0.8 and above are not reached
        ("Integral", (1 + 2 / 3 + 3 / 4) / 4),
        # From the end: best precisions 0.75 (at 3/4), 0.75 (2/4), 0.75, 1 (1/4). SSD's Caffe takes for the step up to
        # a recall the best precision from where it begins.
        ("MaxIntegral", (1 + 0.75 + 0.75) / 4),
    ],
)
def test_versions(version: str, wanted: float) -> None:
    assert average_precision(ROWS, 4, version) == pytest.approx(wanted)


@pytest.mark.parametrize("version", AP_VERSIONS)
def test_ends(version: str) -> None:
    assert average_precision(ROWS[:0], 4, version) == average_precision(ROWS, 0, version) == 0
    assert average_precision(np.array([[0.3, 1.0, 0.0]]), 1, version) == pytest.approx(1)
    assert average_precision(np.array([[0.3, 0.0, 1.0]]), 1, version) == 0
