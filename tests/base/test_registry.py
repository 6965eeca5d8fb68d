"""The registry finds, refuses duplicates and explains unknown names."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from bpt.base.errors import UserError
from bpt.base.registry import Registry


@pytest.fixture
def shapes() -> Registry[type]:
    registry: Registry[type] = Registry("shape")
    for name in ("Square", "Circle", "Triangle"):
        registry.register(name)(type(name, (), {}))
    return registry


def test_what_is_registered_is_found_and_unchanged(shapes: Registry[type]) -> None:
    class Line:
        pass

    assert shapes.register("Line")(Line) is Line
    assert shapes["Line"] is Line
    assert "Line" in shapes
    assert "line" not in shapes


def test_names_come_sorted(shapes: Registry[type]) -> None:
    assert list(shapes) == ["Circle", "Square", "Triangle"]


def test_a_name_is_taken_once(shapes: Registry[type]) -> None:
    with pytest.raises(AssertionError, match="shape 'Circle' is registered twice"):
        shapes.register("Circle")(object)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("circle", 'unknown shape "circle"; did you mean "Circle"?'),
        ("Sqare", 'unknown shape "Sqare"; did you mean "Square"?'),
        ("Blob", 'unknown shape "Blob" (known: Circle, Square, Triangle)'),
        ("", 'unknown shape "" (known: Circle, Square, Triangle)'),
    ],
)
def test_an_unknown_name_is_explained(name: str, message: str, shapes: Registry[type]) -> None:
    with pytest.raises(UserError) as caught:
        shapes[name]
    assert str(caught.value) == message


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Registry[type]:
    """A registry whose table says that the module ``registered_circles`` has a circle and an ellipse."""
    tmp_path.joinpath("registered_circles.py").write_text(
        "class Circle: pass\ndef enter(registry): registry.register('Circle')(Circle)\n"
        "from tests.base import test_registry\nenter(test_registry.filled)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "registered_circles", raising=False)
    registry: Registry[type] = Registry("shape", {"registered_circles": ("Circle", "Ellipse")})
    monkeypatch.setattr(sys.modules[__name__], "filled", registry, raising=False)
    return registry


def test_names_of_modules_are_known_before_these_are_imported(written: Registry[type]) -> None:
    written.register("Square")(type("Square", (), {}))
    assert list(written) == ["Circle", "Ellipse", "Square"]
    assert "Circle" in written
    assert "registered_circles" not in sys.modules
    with pytest.raises(UserError, match='unknown shape "circle"; did you mean "Circle"'):
        written["circle"]
    assert "registered_circles" not in sys.modules


def test_a_module_is_imported_when_its_entry_is_asked_for(written: Registry[type]) -> None:
    assert written["Circle"].__module__ == "registered_circles"


def test_a_name_of_a_module_is_taken_before_it_is_imported(written: Registry[type]) -> None:
    with pytest.raises(AssertionError, match="shape 'Circle' is registered twice"):
        written.register("Circle")(type("Circle", (), {}))
