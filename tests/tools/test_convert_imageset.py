"""``tools/convert_imageset.py``: the recordings of Caffe's, and its flags."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import lmdb
import pytest
from PIL import Image

from bpt.config.proto import bpt_pb2 as pb
from tests.support.commands import Tool
from tests.support.paths import GOLDEN

DATA = GOLDEN / "data"
CASES = [case for case in json.loads((DATA / "convert_imageset.json").read_text()) if "records" in case]


def records(path: Path) -> list[tuple[str, pb.Datum]]:
    environment = lmdb.open(str(path), readonly=True, lock=False)
    with environment.begin() as transaction:
        found = [(key.decode(), pb.Datum.FromString(value)) for key, value in transaction.cursor()]
    environment.close()
    return found


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_caffes_recordings(case: dict[str, Any], tool: Tool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(DATA)
    outcome = tool("convert_imageset", *case["flags"], "./", "list_same.txt", tmp_path / "lmdb")
    assert (outcome.status, outcome.err) == (0, "")
    assert outcome.out == f"{tmp_path}/lmdb: 4 images\n"
    for (key, datum), recorded in zip(records(tmp_path / "lmdb"), case["records"], strict=True):
        assert key == recorded["key"]
        for field in ("channels", "height", "width", "label", "encoded"):
            assert getattr(datum, field) == recorded[field], field
        assert hashlib.md5(datum.data).hexdigest() == recorded["md5"]


def test_the_database_that_caffe_made_of_encoded_images(
    tool: Tool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(DATA)
    assert tool("convert_imageset", "-encoded", "./", "list_same.txt", tmp_path / "lmdb").status == 0
    made = [datum.SerializeToString() for _, datum in records(tmp_path / "lmdb")]
    assert made == [datum.SerializeToString() for _, datum in records(DATA / "encoded_lmdb")]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--backend=leveldb"], "--backend leveldb: LevelDB is neither read nor written; an LMDB holds the same"),
        (["--backend", "rocksdb"], '--backend takes lmdb, found "rocksdb"'),
        (["--resize_width=8"], "images are resized to a height and a width: give both"),
        (["--resize_width=-8", "--resize_height=8"], "--resize_height and --resize_width must not be negative"),
        (["--encode_type=png"], "--encode_type goes with --encoded"),
        (["--encoded", "--encode_type=exe"], '--encode_type takes one of png, jpg, jpeg, bmp, '),
        (["--grya"], 'unrecognized arguments: --grya; did you mean "--gray"?'),
        (["--gray=maybe"], '--gray: takes true or false, found "maybe" (convert_imageset.py --help explains)'),
    ],
)  # fmt: skip
def test_wrong_flags(
    flags: list[str], message: str, tool: Tool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(DATA)
    outcome = tool("convert_imageset", *flags, "./", "list_same.txt", tmp_path / "lmdb")
    assert outcome.error.startswith(message)
    assert outcome.status == 2
    assert not (tmp_path / "lmdb").exists()


def test_an_image_that_cannot_be_read_is_left_out_and_told(
    tool: Tool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(DATA)
    (tmp_path / "list.txt").write_text("images/same0.png 3\nno such.png 1\nimages/same1.png 2\n")
    outcome = tool("convert_imageset", "./", tmp_path / "list.txt", tmp_path / "lmdb")
    assert outcome.status == 1
    assert outcome.out == f"{tmp_path}/lmdb: 2 images; 1 could not be read\n"
    assert outcome.err.startswith(f"left out: {tmp_path}/list.txt:2: ./no such.png: ")
    found = [(key, datum.label) for key, datum in records(tmp_path / "lmdb")]
    assert found == [("00000000_images/same0.png", 3), ("00000002_images/same1.png", 2)]


def test_a_wrong_folder_is_told_in_some_lines(tool: Tool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(DATA)
    listing = tmp_path / "list.txt"
    listing.write_text("same0.png 1\n" * 24)
    for root, remedy in (("images", ', so write "images/"'), ("pictures/", "")):
        outcome = tool("convert_imageset", root, listing, tmp_path / "lmdb")
        *told, more, last = outcome.err.splitlines()
        hint = f'; paths begin with the root folder as it is, "{root}"{remedy}' if remedy else ")"
        assert all(line.startswith("left out: ") and line.endswith(hint) for line in told)
        assert (len(told), more) == (10, "left out: the next ones, too, until one can be read")
        assert last == (
            f"error: {listing}: none of its 24 images could be read; their paths begin with ROOTFOLDER as it is, "
            f'"{root}"{remedy}'
        )
        assert outcome.status == 2
        assert not (tmp_path / "lmdb").exists()


def test_images_of_unlike_sizes_are_told_once(tool: Tool, tmp_path: Path) -> None:
    for name, size in (("a", (2, 3)), ("b", (4, 3)), ("c", (5, 5))):
        Image.new("RGB", size).save(tmp_path / f"{name}.png")
    (tmp_path / "list.txt").write_text("a.png 0\nb.png 1\nc.png 2\n")
    outcome = tool("convert_imageset", f"{tmp_path}/", tmp_path / "list.txt", tmp_path / "lmdb")
    assert (outcome.status, outcome.out) == (0, f"{tmp_path}/lmdb: 3 images\n")
    problem = (
        f"{tmp_path}/b.png: is of 3×3×4, the first image of 3×3×2; --resize_height and --resize_width make them equal"
    )
    assert outcome.err == f"{problem}, or the net needs a crop_size\n"
    refused = tool("convert_imageset", "--check_size", f"{tmp_path}/", tmp_path / "list.txt", tmp_path / "other")
    assert (refused.status, refused.error) == (1, problem)
