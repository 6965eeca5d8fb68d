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


@pytest.mark.parametrize("asked", ["list.txt", "net.prototxt"])
def test_every_volume_is_read(asked: str) -> None:
    nibabel = pytest.importorskip("nibabel")
    voxels = np.random.default_rng(0).normal(size=(4, 4, 4)).astype(np.float32)
    for name in ("a.nii.gz", "b.nii", "cut.nii.gz"):
        nibabel.save(nibabel.Nifti1Image(voxels, np.eye(4)), f"in/{name}")
    whole = Path("in/cut.nii.gz").read_bytes()
    Path("in/cut.nii.gz").write_bytes(whole[: len(whole) // 2])
    param = 'source: "list.txt" root_folder: "in" batch_size: 1 shape: 4'
    root = "" if asked == "list.txt" else "in/"
    net = f'layer {{ name: "d" type: "VolumeData" top: "d" volume_data_param {{ {param} }} }}'
    Path("net.prototxt").write_text(net)
    before = "in/" if not root else ""
    Path("list.txt").write_text("".join(f"{before}{name} 1\n" for name in ("a.nii.gz", "cut.nii.gz", "b.nii", "c.nii")))
    cut, missing = findings(asked)
    assert (cut.kind, missing.kind) == (Severity.PROBLEM, Severity.PROBLEM)
    assert cut.text.startswith("list.txt:2: in/cut.nii.gz: is not a NIfTI file, or a damaged one")
    assert missing.text.startswith('list.txt:4: lists "')
    assert missing.remedy == "2 of 4 volumes in the list of volumes list.txt: repair or remove them"
    Path("list.txt").write_text(f"{before}a.nii.gz 1\n")
    [finding] = findings(asked)
    assert (finding.kind, finding.text) == (Severity.OK, "list of volumes list.txt: 1 volume, all can be decoded")


def test_every_clip_is_decoded() -> None:
    for video in ("whole", "short"):
        Path("in", video).mkdir()
        for number in range(1, 5 if video == "whole" else 3):
            Path(f"in/{video}/{number:06}.jpg").write_bytes(picture_bytes("JPEG", number))
    Path("l").write_text("in/whole 1 0\nin/short 1 1\nin/whole 2 2\n")
    param = 'source: "l" batch_size: 1 new_length: 3 use_image: true'
    Path("net.prototxt").write_text(
        f'layer {{ name: "d" type: "VideoData" top: "d" top: "l" video_data_param {{ {param} }} }}'
    )
    [finding] = findings("net.prototxt")
    assert finding.kind is Severity.PROBLEM
    assert finding.text.startswith("l:2: in/short/000003.jpg: no such file")
    assert finding.remedy == "1 of 3 clips in the list of clips l: repair or remove them"
    [finding] = findings("l")  # a list alone does not say how many frames a clip has
    assert finding.text == "l: seems to list clips; give the network's text, which says how they are read"


def test_a_text_that_is_no_list_says_what_it_is_not() -> None:
    Path("README.md").write_text("# bpt\n\nA text.\n")
    [finding] = findings("README.md")
    assert finding.kind is Severity.PROBLEM
    assert finding.text.startswith("README.md: is no data set, no network, and no list of pictures, volumes or HDF5")
    Path("l").write_text("missing.h5\n")
    [finding] = findings("l")
    assert finding.text.startswith('l: lists "missing.h5", which does not exist')


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
