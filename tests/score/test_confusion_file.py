from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bpt.errors import UserError
from bpt.score.confusion_file import check_path, write

MATRIX = np.array([[3, 1], [0, 2]])


def test_a_table(tmp_path: Path) -> None:
    write(tmp_path / "c.csv", MATRIX, ["cat, wild", "dog"])
    assert (tmp_path / "c.csv").read_text() == 'label,"cat, wild",dog\n"cat, wild",3,1\ndog,0,2\n'


@pytest.mark.parametrize("classes", [2, 20, 70])
def test_pictures(tmp_path: Path, classes: int) -> None:
    """With numbers and names, with names only, with neither; a $ in a name is no formula."""
    matrix = np.eye(classes, dtype=np.int64)
    matrix[0, 0] = 0  # a class without labels
    for name in ("c.png", "c.SVG"):
        write(tmp_path / name, matrix, [f"$name_{i}" for i in range(classes)])
    assert (tmp_path / "c.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (tmp_path / "c.SVG").read_text()


def test_other_kinds_of_file() -> None:
    for path in ("a.csv", "b.PNG", "c.svg"):
        check_path(path)
    with pytest.raises(UserError, match=r'"a\.gif": a confusion matrix is written as \.csv, \.png or \.svg'):
        check_path("a.gif")


def test_a_folder_that_is_missing_is_told_before_the_test(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r'c\.csv: cannot be written: there is no folder ".*/nowhere"'):
        check_path(f"{tmp_path}/nowhere/c.csv")


def test_letters_that_the_font_lacks_are_no_warning(tmp_path: Path) -> None:
    write(tmp_path / "c.png", MATRIX, ["猫", "犬"])
