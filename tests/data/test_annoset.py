"""Annotated images as an LMDB: what each kind of annotation says, worked out by hand, and what is wrong with some."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from bpt.base.errors import DataError, FileError, UserError
from bpt.config.proto import bpt_pb2 as pb
from bpt.data.annoset import Annotations, convert_annoset
from bpt.data.annotated import AnnotatedSource, decode_annotated
from bpt.data.imageset import ImageConversion
from bpt.data.lmdb_file import LmdbSource
from tests.support.annotation_files import JSON, MAP, TEXT, XML

FIRST = (0.1, 0.25, 0.5, 0.5)
SEEN = {
    "xml": (XML, [(7, 0, *FIRST, 1), (7, 1, 0.25, 0, 0.75, 0.75, 0), (3, 0, 0, 0, 1, 1, 0)]),
    "json": (JSON, [(3, 0, *FIRST, 1)]),
    "txt": (TEXT, [(2, 0, *FIRST, 0), (9, 0, 0, 0, 1, 1, 0)]),
}
told: list[str] = []


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An image of 20×40, a label map, and a list of the image twice."""
    told.clear()
    pixels = np.random.default_rng(0).integers(0, 256, (20, 40, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "an image.png")
    (tmp_path / "map.prototxt").write_text(MAP)
    return tmp_path


def convert(folder: Path, content: str, kind: str = "xml", times: int = 1, **wanted: Any) -> tuple[int, int]:
    (folder / "notes").write_text(content)
    (folder / "list.txt").write_text("an image.png notes\n" * times)
    annotations = Annotations(written=kind, label_map="" if kind == "txt" else str(folder / "map.prototxt"))
    return convert_annoset(
        f"{folder}/",
        str(folder / "list.txt"),
        str(folder / "lmdb"),
        ImageConversion(**wanted),
        annotations,
        told.append,
    )


@pytest.mark.parametrize("kind", SEEN)
def test_objects(kind: str, folder: Path) -> None:
    content, objects = SEEN[kind]
    assert convert(folder, content, kind, times=2) == (2, 0)
    source = AnnotatedSource(str(folder / "lmdb"))
    assert source.has_boxes()
    for index in range(2):
        sample = source.read(index)
        assert sample.key == f"0000000{index}_an image.png"
        assert (sample.image.shape, sample.label) == ((3, 20, 40), -1)
        np.testing.assert_allclose(sample.objects, objects, rtol=1e-6)
    source.close()
    assert told == []


@pytest.mark.parametrize(
    ("wanted", "size"),
    [
        ({"height": 10, "width": 8}, (10, 8)),
        ({"min_dim": 30}, (30, 60)),
        ({"max_dim": 10}, (5, 10)),
        ({"min_dim": 30, "max_dim": 50}, (25, 50)),
        ({"min_dim": 4, "max_dim": 90}, (20, 40)),
    ],
)
def test_sizes_leave_boxes_alone(wanted: dict[str, int], size: tuple[int, int], folder: Path) -> None:
    convert(folder, TEXT, "txt", encoded=True, **wanted)
    source = LmdbSource(str(folder / "lmdb"))
    image, _, objects = decode_annotated(source.record(0).datum)
    source.close()
    assert image.shape == (3, *size)
    np.testing.assert_allclose(objects[0], SEEN["txt"][1][0], rtol=1e-6)


def test_files_are_stored_as_they_are_and_classes_without_boxes(folder: Path) -> None:
    (folder / "list.txt").write_text("an image.png 5\n")
    wanted, annotations = ImageConversion(encoded=True), Annotations(kind="classification")
    assert convert_annoset(f"{folder}/", str(folder / "list.txt"), str(folder / "lmdb"), wanted, annotations) == (1, 0)
    source = LmdbSource(str(folder / "lmdb"))
    record = pb.AnnotatedDatum.FromString(source.record(0).datum)
    source.close()
    assert record.datum.data == (folder / "an image.png").read_bytes()
    assert (record.datum.label, record.HasField("type"), len(record.annotation_group)) == (5, False, 0)


def test_an_odd_box_is_told_and_kept(folder: Path) -> None:
    convert(folder, "1 30 5 20 50", "txt")
    assert told == [f"{folder}/an image.png: has a box that reaches beyond the image, or has exchanged corners"]


@pytest.mark.parametrize(
    ("content", "kind", "words"),
    [
        ("<annotation><object>", "xml", "is not a readable annotation in xml: "),
        ("<a><object><name>cat</name></object></a>", "xml", "'bndbox' is missing"),
        (XML.replace("<xmin>4</xmin>", "<xmin>4px</xmin>"), "xml", "could not convert string to float"),
        ("[]", "json", "is not a readable annotation in json"),
        (JSON.replace("[4, 5, 16, 5]", "[4, NaN, 16, 5]"), "json", "a corner that is not finite"),
        ("1 2 3", "txt", '"1 2 3" is not a label and four corners'),
        ("99999999999 1 1 2 2", "txt", "beyond float32's integers"),
    ],
)
def test_an_annotation_that_cannot_be_read_is_left_out(content: str, kind: str, words: str, folder: Path) -> None:
    with pytest.raises(FileError, match="its one image could not be read"):
        convert(folder, content, kind)
    assert words in told[0] and told[0].startswith(f"left out: {folder}/list.txt:1: {folder}/notes")
    assert not (folder / "lmdb").exists()


def test_what_is_wrong_ends_the_work(folder: Path) -> None:
    with pytest.raises(FileError, match='has an object "cut", which the label map does not name; did you mean "cat"'):
        convert(folder, XML.replace("cat", "cut"))
    (folder / "map.prototxt").write_text(MAP.replace("18", "cat"))
    with pytest.raises(FileError, match='has the name "cat" twice'):
        convert(folder, XML)
    (folder / "map.prototxt").write_text(MAP)
    (folder / "list.txt").write_text("alone.png\n")
    with pytest.raises(FileError, match=r'list.txt:1: "alone.png" is one path'):
        convert_annoset(
            "", str(folder / "list.txt"), str(folder / "lmdb"), ImageConversion(), Annotations(written="txt")
        )
    cases: list[tuple[dict[str, Any], str]] = [
        ({"kind": "boxes"}, '--anno_type takes one of detection, classification, found "boxes"'),
        ({"written": "yaml"}, "--label_type takes one of xml, json, txt"),
        ({}, "--label_type xml needs --label_map_file"),
    ]
    for wrong, words in cases:
        with pytest.raises(UserError, match=words):
            Annotations(**wrong)
    with pytest.raises(UserError, match="not both"):
        ImageConversion(height=4, width=4, min_dim=3)
    Image.new("RGB", (3, 3)).save(folder / "b.png")
    (folder / "notes").write_text(TEXT)
    (folder / "list.txt").write_text("an image.png notes\nb.png notes\n")
    with pytest.raises(DataError, match="make them equal"):
        convert_annoset(
            f"{folder}/", str(folder / "list.txt"), str(folder / "lmdb"), ImageConversion(check_size=True),
            Annotations(written="txt"),
        )  # fmt: skip
