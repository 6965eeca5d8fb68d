"""The registry finds, refuses duplicates and explains unknown names."""

from __future__ import annotations

import pytest

from bpt.errors import UserError
from bpt.registry import Registry


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
