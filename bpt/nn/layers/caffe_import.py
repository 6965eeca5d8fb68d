"""A finder with which ``import caffe`` gives ``bpt.caffe``, which has pycaffe's names."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

CAFFE = "caffe"
FACE = "bpt.caffe"


class CaffeFinder(MetaPathFinder, Loader):
    """A finder of ``caffe`` and its submodules: the very modules of ``bpt.caffe``, under other names."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not _is_caffe(fullname) or importlib.util.find_spec(_face(fullname)) is None:
            return None
        return ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = importlib.import_module(_face(spec.name))
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Restore the module's own spec. The module is already executed; Python has replaced its spec."""
        assert module.__spec__ is not None
        module.__spec__ = module.__spec__.loader_state


_FINDER = CaffeFinder()


def install() -> None:
    """Let ``import caffe`` give ``bpt.caffe`` from now on, even where a Caffe is installed."""
    _forget(_imported())
    _find(first=True)


@contextmanager
def caffe_for_import() -> Iterator[None]:
    """Let ``import caffe`` give ``bpt.caffe`` inside, and also afterwards if no Caffe is installed.

    A real Caffe is never used inside, since only Caffe itself can make its ``Layer``.
    """
    others = _imported()
    _forget(others)
    first = _is_first()
    _find(first=True)
    try:
        yield
    finally:
        if not first:
            _forget(_imported())
            sys.modules.update(others)
            _find(first=False)


def _find(first: bool) -> None:
    if _FINDER in sys.meta_path:
        sys.meta_path.remove(_FINDER)
    sys.meta_path.insert(0 if first else len(sys.meta_path), _FINDER)


def _is_first() -> bool:
    return sys.meta_path[:1] == [_FINDER]


def _is_caffe(name: str) -> bool:
    return name == CAFFE or name.startswith(f"{CAFFE}.")


def _face(name: str) -> str:
    return FACE + name.removeprefix(CAFFE)


def _imported() -> dict[str, ModuleType]:
    """Return the modules that are now imported as ``caffe``."""
    return {name: module for name, module in sys.modules.items() if _is_caffe(name)}


def _forget(modules: dict[str, ModuleType]) -> None:
    for name in modules:
        del sys.modules[name]
