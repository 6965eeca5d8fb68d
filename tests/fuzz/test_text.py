"""Texts: networks as far as their graphs, solvers as far as their checks, and what --set lays over them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz.engine import Target, run_cases, run_one
from tests.fuzz.targets.text import TARGETS, Clusters, NetTexts


@pytest.mark.parametrize("kind", TARGETS, ids=lambda kind: kind.name)
def test_texts_are_taken_or_refused(kind: type[Target], tmp_path: Path) -> None:
    run_cases(kind(tmp_path), 1, range(kind.short))


_INPUT = 'layer { name: "d" type: "Input" top: "x" input_param { shape { dim: 2 dim: 3 } } }\n'
_POWER = _INPUT + 'layer { name: "p" type: "Power" bottom: "x" top: "y" power_param { scale: %s } }'


@pytest.mark.parametrize(
    ("text", "is_refused"),
    [
        ("layer { " * 20_000, True),
        ("layer { convolution_param { weight_filler { " * 5000, True),
        ("input_dim: " + "[" * 20_000, True),
        ("input_dim: " + "1" * 10**6, True),
        (_POWER % ("1" * 10**6), True),  # infinite, as the next but one
        (_POWER % ("0." + "1" * 10**6), False),
        (_POWER % ("1e" + "1" * 10**6), True),
        ("a" * 10**6 + ": 3", True),
        ('name: "' + "a" * 10**6, True),
        ('name: "' + r"\x41" * 10**5 + '"', True),
        ("name: " + '"a" ' * 20_000, True),
        ("#" * 10**6, True),
        (_INPUT + 'layer { name: "' + "a" * 10**5 + '" type: "ReLU" bottom: "q" top: "y" }', True),
        (_INPUT + 'layer { name: "r" type: "' + "a" * 10**5 + '" bottom: "x" top: "y" }', True),
        (_INPUT + 'layer { name: "c" type: "Concat" ' + 'bottom: "x" ' * 2000 + 'top: "y" }', False),
        (_INPUT.replace("dim: 3", "dim: 9223372036854775807 " * 30), False),
        (_INPUT.replace("dim: 3", "dim: 1 " * 2000), True),
    ],
    ids=range(17),
)
def test_texts_that_say_too_much(text: str, is_refused: bool, tmp_path: Path) -> None:
    """Nesting, long numbers, names and lists: nothing that takes more than its length."""
    assert run_one(NetTexts(tmp_path), text.encode()).refused == is_refused


def test_a_cluster_of_too_many_nodes(tmp_path: Path) -> None:
    assert run_one(Clusters(tmp_path), b"node { count: 2147483647 samples_per_second: 3 }").refused
