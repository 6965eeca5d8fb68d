"""``bpt doctor --data`` decodes every picture of lists, window files, folders and databases."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bpt.apps.doctor.findings import Finding, Ranks, Severity
from bpt.apps.doctor.stored_data import check_stored_data, stored_at
from bpt.cli.main import main
from bpt.config.proto import bpt_pb2 as pb
from bpt.data.annotated import annotate
from bpt.data.hdf5_file import Hdf5Writer
from bpt.data.lmdb_file import LmdbWriter
from tests.support.damaged_pictures import DAMAGED, picture_bytes
from tests.support.doubles.thread_ranks import run_ranks


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole pictures and all damaged ones in the folder ``in``."""
    monkeypatch.chdir(tmp_path)
    Path("in").mkdir()
    for number in range(40):
        Path(f"in/good {number}.png").write_bytes(picture_bytes("PNG", number))
    for name, make in DAMAGED.items():
        make(Path("in", name))


def findings(path: str) -> tuple[Finding, ...]:
    [section] = run_ranks(1, lambda comm: check_stored_data(Ranks.meet(comm), lambda: stored_at(path)))
    return section.findings


def layer(kind: str, settings: str) -> str:
    field = {"ImageData": "image_data_param", "ImageSegData": "image_data_param"}.get(kind, "window_data_param")
    return f'layer {{ name: "d" type: "{kind}" top: "a" top: "b" {field} {{ batch_size: 1 {settings} }} }}'


GOOD = [f"good {number}.png" for number in range(40)]
BAD = [*DAMAGED, "missing.png"]


def windows(root: str) -> str:
    blocks = (f"# {at}\n{root}{name}\n3\n20\n24\n1\n1 1 0 0 4 4\n" for at, name in enumerate([*GOOD, *BAD]))
    return "".join(blocks)


@pytest.mark.parametrize(
    ("files", "asked"),
    [
        ({"list.txt": "".join(f"in/{name} 3\n" for name in [*GOOD, *BAD])}, "list.txt"),
        ({"list.txt": "".join(f"in/{name}\n" for name in [*GOOD, *BAD])}, "list.txt"),
        ({"in/list": "".join(f"{name} 0\n" for name in [*GOOD, *BAD])}, "in/list"),
        ({"windows": windows("in/")}, "windows"),
        ({"l": "".join(f"{name} 3\n" for name in [*GOOD, *BAD]),
          "net.prototxt": layer("ImageData", 'source: "l" root_folder: "in/"')}, "net.prototxt"),
        ({"w": windows(""), "net.prototxt": layer("WindowData", 'source: "w" root_folder: "in/"')}, "net.prototxt"),
    ],
    ids=["labelled", "unlabelled", "beside the list", "window file", "ImageData", "WindowData"],
)  # fmt: skip
def test_every_damaged_picture_is_named(files: dict[str, str], asked: str) -> None:
    for name, text in files.items():
        Path(name).write_text(text)
    found = findings(asked)
    assert [finding.kind for finding in found] == [Severity.PROBLEM] * len(BAD)
    for name, finding in zip(BAD, found, strict=True):
        assert f"{name}: " in finding.text
    assert f"{len(BAD)} of {len(GOOD) + len(BAD)} files" in found[-1].remedy


def test_images_of_labels_are_decoded_too() -> None:
    Path("in/good.png").write_bytes(picture_bytes())
    Path("l").write_text("in/good.png in/cut.png\nin/good.png in/good.png\n")
    Path("net.prototxt").write_text(layer("ImageSegData", 'source: "l"'))
    for asked in ("net.prototxt", "l"):
        [finding] = findings(asked)
        assert finding.kind is Severity.PROBLEM
        assert finding.text.startswith("l:1: in/cut.png: ")


def test_annotated_list() -> None:
    Path("in/a.jpg").write_bytes(picture_bytes("JPEG"))
    Path("in/a.xml").write_text("<annotation/>")
    Path("l").write_text("in/a.jpg in/a.xml\nin/a.jpg in/b.xml\nin/cut.jpg in/a.xml\n")
    first, second = findings("l")
    assert first.text.startswith("l:2: in/b.xml: no such file")
    assert second.text.startswith("l:3: in/cut.jpg: ")


def test_folder_and_single_file() -> None:
    assert len(findings("in")) == len(DAMAGED) - 1  # a folder in it is looked through
    assert [finding.kind for finding in findings("in/empty.png")] == [Severity.PROBLEM]
    for name in DAMAGED:
        path = Path("in", name)
        path.rmdir() if path.is_dir() else path.unlink()
    [finding] = findings("in")
    assert (finding.kind, finding.text) == (Severity.OK, "folder of images in: 40 files, all can be decoded")


def test_a_list_of_hdf5_files_is_one_still() -> None:
    rows = Hdf5Writer("in/rows.h5")
    rows.append({"data": np.zeros((6, 2))})
    rows.close()
    Path("l").write_text("in/rows.h5\n")
    assert [finding.kind for finding in findings("l")] == [Severity.OK]


@pytest.mark.parametrize("annotated", [False, True])
@pytest.mark.parametrize("checksums", [False, True])
def test_encoded_records(annotated: bool, checksums: bool) -> None:
    def put(database: LmdbWriter, key: str, content: bytes) -> None:
        datum = pb.Datum(data=content, encoded=True, label=1)
        database.put(annotate(datum, np.zeros((0, 7), np.float32)) if annotated else datum, key)

    with LmdbWriter("db") as database:
        for number in range(5):
            put(database, f"{number}", picture_bytes("JPEG", number))
        put(database, "bad", Path("in/cut.jpg").read_bytes())
    if not checksums:
        whole = Path("db/data.mdb").read_bytes()
        Path("db/data.mdb").write_bytes(whole[: len(whole) // 4096 * 4096])
    [finding] = findings("db")
    assert finding.kind is Severity.PROBLEM
    assert finding.text.startswith('LMDB db is damaged: record "bad": a damaged image file')
    assert '"1"' not in finding.text


def test_status(capsys: pytest.CaptureFixture[str]) -> None:
    Path("l").write_text("in/good 1.png 0\nin/cut.png 1\n")
    assert main(["doctor", "--data", "l"]) == 1
    assert "PROBLEM  l:2: in/cut.png: " in capsys.readouterr().out
    Path("l").write_text("in/good 1.png 0\n")
    assert main(["doctor", "--data", "l"]) == 0
