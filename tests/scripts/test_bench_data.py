"""``scripts/bench data``: both sides read the same images, in turn, and the table says how they compare."""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from bpt.config.proto import bpt_pb2 as pb
from bpt.data.lmdb_file import LmdbSource
from scripts.benches import data, data_loader
from tests.support.golden_cases import graph_of


def test_images(tmp_path: Path) -> None:
    data.make_images(tmp_path, 3, 64, 48)
    lines = (tmp_path / "list.txt").read_text().splitlines()
    assert lines == [f"{tmp_path}/00000{number}.jpg {number}" for number in range(3)]
    with Image.open(tmp_path / "000001.jpg") as image:
        assert (image.format, image.size) == ("JPEG", (64, 48))
    source = LmdbSource(str(tmp_path / "lmdb"))
    assert (len(source), source.is_encoded()) == (3, True)
    source.close()


@pytest.mark.parametrize("kind", ["ImageData", "Data"])
def test_both_sides_make_crops_of_the_same_images(kind: str, tmp_path: Path) -> None:
    """Less the mean, and mirrored or not; resized as each does it."""
    data.make_images(tmp_path, 2, 320, 240)
    layer = data.layer_of(kind, tmp_path, 2, 1)
    graph = graph_of(str(pb.NetParameter(layer=[layer])))
    assert graph.edges[0].shape == (2, 3, data.CROP, data.CROP)
    images = data_loader.Images(kind, tmp_path, (data.RESIZED, data.CROP, data.MEAN))
    assert len(images) == 2
    pixels, label = images[1]
    assert (tuple(pixels.shape), label) == ((3, data.CROP, data.CROP), 1)
    with Image.open(tmp_path / "000001.jpg") as image:
        mean = np.asarray(image, np.float32).mean((0, 1)) - data.MEAN
    np.testing.assert_allclose(pixels.mean((1, 2)), mean, atol=8)


def test_turns() -> None:
    order = []
    sides = [lambda batches: order.append(("a", batches)), lambda batches: order.append(("b", batches))]
    measured = data.speeds(sides, batches=3, batch=8, rounds=2)
    assert order == [("a", 3), ("b", 3)] * 3
    assert [len(each) for each in measured] == [2, 2]
    assert all(speed > 0 for each in measured for speed in each)


def test_a_row() -> None:
    line = data.row("JPEG files", [100.0, 300, 200], [100, 100, 200])
    assert line.split() == ["JPEG", "files", "200", "100", "1.00", "1.00", "-", "3.00"]  # ratios 1, 3, 1


def test_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    settings = {"images": 8, "size": "260x250", "batch": 4, "workers": 1, "rounds": 2, "net": "lenet", "iterations": 0}
    data.run(argparse.Namespace(**settings))
    head, _, _, files, records = capsys.readouterr().out.splitlines()
    assert head.startswith("8 JPEGs of 260x250, batches of 4, 1 workers")
    for row, name in ((files, "JPEG files"), (records, "LMDB of JPEGs")):
        assert row.startswith(name)
        numbers = [float(number) for number in row[len(name) :].replace(" - ", " ").split()]
        assert len(numbers) == 5 and min(numbers[:2]) >= 0  # on a machine that is busy enough, 0 images a second
