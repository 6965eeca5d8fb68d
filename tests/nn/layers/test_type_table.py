"""The table that says which file has which layer types, against the files; the other registries' tables, too."""

from __future__ import annotations

import pkgutil
import re
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from bpt.base.registry import Registry
from bpt.engine.optim.rules import UPDATE_RULES
from bpt.nn import layers
from bpt.nn.layers import LAYERS
from bpt.nn.layers.type_table import TYPES_OF
from bpt.parallel.exchange import EXCHANGES


def test_every_file_that_registers_types_stands_in_the_table() -> None:
    written = {}
    for module in pkgutil.iter_modules(layers.__path__):
        text = Path(layers.__path__[0], f"{module.name}.py").read_text()
        if types := re.findall(r'^@LAYERS\.register\("(\w+)"\)', text, re.MULTILINE):
            written[module.name] = tuple(sorted(types))
    assert {file: tuple(sorted(types)) for file, types in TYPES_OF.items()} == written


@pytest.mark.parametrize("registry", [LAYERS, EXCHANGES, UPDATE_RULES], ids=lambda registry: str(registry.kind))
def test_every_name_is_found_where_the_table_says(registry: Registry[Any]) -> None:
    names = list(registry)
    assert all(registry[name].__module__ == registry.module_of(name) for name in names)
    assert list(registry) == names  # nobody has entered another one


def test_every_module_of_a_table_can_be_imported_first() -> None:
    for file in TYPES_OF:
        import_module(f"bpt.nn.layers.{file}")
