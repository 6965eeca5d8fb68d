"""The layout of the package: few districts, and one name for one thing."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from pathlib import Path

import bpt
from tests.support.paths import ROOT, TESTS

PACKAGE = Path(bpt.__file__).parent
FACE = PACKAGE / "caffe"
PYCAFFE = {"Net", "Solver", "Detector"}  # its names, which only bpt.caffe may repeat
EVERYWHERE = sorted(PACKAGE.rglob("*.py"))
FILES = [path for path in EVERYWHERE if FACE not in path.parents]
READING_ORDERS = [
    face for folder in ("parallel", "train/outer") for face in sorted((PACKAGE / folder).rglob("__init__.py"))
]


def repeated(found: dict[str, list[str]]) -> dict[str, list[str]]:
    return {name: places for name, places in found.items() if len(places) > 1}


def test_thirteen_districts() -> None:
    districts = {path.name for path in PACKAGE.iterdir() if (path / "__init__.py").exists()}
    assert len(districts) <= 13
    assert {path.name for path in PACKAGE.iterdir() if path.is_file()} == {"__init__.py", "__main__.py", "py.typed"}


def test_no_two_public_classes_share_a_name() -> None:
    found: dict[str, list[str]] = defaultdict(list)
    for path in EVERYWHERE:
        exempt = PYCAFFE if FACE in path.parents else ()
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_") and node.name not in exempt:
                found[node.name].append(str(path.relative_to(PACKAGE)))
    assert not repeated(found)


def test_no_two_modules_share_a_name() -> None:
    found: dict[str, list[str]] = defaultdict(list)
    for path in FILES:
        if path.name not in ("__init__.py", "__main__.py", "base.py"):
            found[path.name].append(str(path.relative_to(PACKAGE)))
    assert not repeated(found)


def test_every_package_says_what_it_is() -> None:
    faces = list(PACKAGE.rglob("__init__.py"))
    assert [path for path in faces if not ast.get_docstring(ast.parse(path.read_text()))] == []


def test_reading_orders_name_files_that_exist_and_leave_none_out() -> None:
    wrong = []
    for face in READING_ORDERS:
        named = set(re.findall(r"[\w/]+\.py\b", ast.get_docstring(ast.parse(face.read_text())) or ""))
        wrong += [(face, name) for name in named if not ((face.parent / name).exists() or (ROOT / name).exists())]
        if named:
            wrong += [(face, path.name) for path in face.parent.glob("*.py") if path != face and path.name not in named]
    assert not wrong


def test_no_module_of_the_tests_imports_a_test_module() -> None:
    """What several tests use stands in ``tests/support``, or beside them under a name that pytest does not collect."""
    found = []
    for path in (
        *TESTS.rglob("*.py"),
        *(ROOT / "scripts").rglob("*.py"),
        ROOT / "scripts/chaos",
        ROOT / "scripts/check_gpu",
        ROOT / "scripts/fuzz",
    ):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import | ast.ImportFrom) else []
            module = (node.module or "") if isinstance(node, ast.ImportFrom) else ""
            parts = f"{module}.{'.'.join(names)}".split(".")
            if "tests" in parts and any(part.startswith("test_") for part in parts):
                found.append(str(path.relative_to(ROOT)))
    assert not found
