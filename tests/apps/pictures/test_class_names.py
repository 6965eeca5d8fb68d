"""The names of classes: which file gives them, and files that do not fit."""

from __future__ import annotations

from pathlib import Path

import pytest

from bpt.apps.pictures.class_names import ClassNames, class_names, names_of_net
from bpt.base.errors import FileError


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("cat\ndog\n", ["cat", "dog"]),
        ("\n cat\n\ndog\n\n", ["cat", "dog"]),
        ("\ndog\n", ["", "dog"]),  # each class has a line, and class 0 no name
    ],
)
def test_a_name_on_each_line(text: str, names: list[str]) -> None:
    Path("names").write_text(text)
    found = class_names("names", 2)
    assert [found[0], found[1]] == names


def test_how_classes_are_shown() -> None:
    names = ClassNames(["cat", ""])
    assert [names.words(number) for number in range(3)] == ['0 "cat"', "class 1", "class 2"]
    assert [names.in_sentence(number) for number in range(3)] == ['class 0 "cat"', "class 1", "class 2"]
    assert [names.short(number) for number in range(3)] == ["cat", "1", "2"]
    assert names and not ClassNames() and not ClassNames(["", ""])


def test_the_file_beside_the_text_gives_names_if_it_fits() -> None:
    Path("net").mkdir()
    Path("net/classes.txt").write_text("cat\ndog\n")
    Path("other").write_text("Katze\nHund\n")
    assert names_of_net("", "net/deploy.prototxt", 2)[1] == "dog"
    assert names_of_net("other", "net/deploy.prototxt", 2)[1] == "Hund"
    assert not names_of_net("", "net/deploy.prototxt", 3)
    assert not names_of_net("", "deploy.prototxt", 2)
    with pytest.raises(FileError, match="other: names 2 classes, the net has 3; write a line for each, from class 0"):
        names_of_net("other", "net/deploy.prototxt", 3)
