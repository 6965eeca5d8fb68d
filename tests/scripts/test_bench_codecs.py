"""``scripts/bench codecs``: cells that are there are not measured again, and the tables say what follows from them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from bpt.config.proto.text import to_text
from scripts.benches.codecs import accuracy, speed
from scripts.benches.codecs.speed import Cell
from scripts.benches.harness.tables import append_rows
from tests.support.doubles.thread_ranks import run_ranks


def cell(link: str, codec: str, exposed: float, net: str = "vgg16") -> Cell:
    return Cell(net, 2, link, codec, exposed, exposed + 1, 1)


def test_what_is_there_is_not_measured_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []

    class Bed:
        def __init__(self, *words: str) -> None:
            asked.append(list(words))

        def __enter__(self) -> None: ...
        def __exit__(self, *error: object) -> None: ...

    def answer(module: str, order: Any, folder: Path, ranks: int) -> dict[str, dict[str, float]]:
        asked.append(order["codecs"])
        return {codec: {"exposed": 2.0, "total": 3.0, "iterations": 1} for codec in order["codecs"]}

    monkeypatch.setattr(speed, "on_testbed", Bed)
    monkeypatch.setattr(speed, "run_on_hosts", answer)
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    path = tmp_path / "speed.csv"
    speed.add(path, [cell("1gbit", "NONE", 1.0, "lenet")])
    for _ in range(2):
        speed.measure(path, ["lenet"], 2, "1gbit", ["NONE", "BF16"], 1.0)
    assert asked == [["a:1,b:1", "1gbit"], ["BF16"]]
    assert [(each.codec, each.exposed) for each in speed.read(path)] == [("NONE", 1.0), ("BF16", 2.0)]


def test_the_table_and_its_goals() -> None:
    """At 10 Gbit/s: 11 s and 2 s lie on 1 + 1e9 / bits; the codec's 4 s and 3.1 s on 3 + 1e8 / bits: NONE is best."""
    cells = [
        cell("100mbit", "NONE", 11.0), cell("1gbit", "NONE", 2.0),
        cell("100mbit", "TOPK", 4.0), cell("1gbit", "TOPK", 3.1),
        cell("100mbit", "BF16", 6.5),
    ]  # fmt: skip
    rows = [line.split() for line in speed.table(cells)]
    assert rows[1] == ["vgg16", "2", "NONE", "11.000", "1.00", "2.000", "1.00", "1.100", "1.00"]
    assert rows[2] == ["vgg16", "2", "BF16", "6.500", "0.59"]
    assert rows[3] == ["vgg16", "2", "TOPK", "4.000", "0.36", "3.100", "1.55", "3.010", "2.74"]
    assert speed.missed(cells) == ["MISSED: vgg16, 2 hosts, 100mbit, TOPK or POWERSGD: 0.36 of NONE, goal 0.25"]
    assert speed.missed([cell("100mbit", "BF16", 6.5)]) == []


def test_a_job(tmp_path: Path) -> None:
    """Ranks on two hosts, each of which trains by each codec."""
    path = tmp_path / "solver.prototxt"
    path.write_text(to_text(speed._solver("lenet")))
    order = {"solver": str(path), "codecs": ["NONE", "TOPK"], "seconds": 0.0}
    found, _ = run_ranks(2, lambda world: speed.work(order, world), hosts=["a", "b"])
    assert list(found) == ["NONE", "TOPK"]
    assert all(0 < each["exposed"] < each["total"] and each["iterations"] == 1 for each in found.values())


def test_points_that_are_lost(tmp_path: Path) -> None:
    path = tmp_path / "accuracy.csv"
    for codec, values in {"NONE": (90.0, 92.0), "BF16": (89.8, 91.8), "TOPK": (89.0, 91.5)}.items():
        for seed, value in enumerate(values, 1):
            append_rows(path, accuracy.HEAD, [("lenet", codec, seed, value)])
    found = accuracy.read(path)
    assert [(net, codec, round(lost, 3)) for net, codec, lost in accuracy.means(found)] == [
        ("lenet", "BF16", 0.2), ("lenet", "TOPK", 0.75),
    ]  # fmt: skip
    rows = [line.split() for line in accuracy.table(found)]
    assert [row[-2:] for row in rows[2:]] == [["+0.20", "reached"], ["+0.75", "MISSED"]]
