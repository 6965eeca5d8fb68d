"""What a run reads and writes, on hosts where it is not the same."""

from __future__ import annotations

import os
import shutil
from collections import namedtuple
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from bpt.apps.doctor import read_files as files
from bpt.apps.doctor.content import file_content, image_content, lmdb_content, volume_content
from bpt.apps.doctor.findings import Finding, Ranks, Section, Severity
from bpt.apps.doctor.read_files import CheckedInput, check_inputs, check_snapshots, inputs_of, read_inputs
from bpt.apps.doctor.texts import Texts
from bpt.config.plan.resolve import read_plan
from bpt.config.plan.run_plan import ParallelSpec, RunPlan
from bpt.config.proto import bpt_pb2 as pb
from tests.apps.doctor.nets import write_run
from tests.apps.doctor.world import on_hosts, only, same, texts_of, this_rank
from tests.support.lmdbs import write_records
from tests.support.paths import GOLDEN


def reading_of(file: Any) -> Any:
    """How a file is read: a partial of a function of ``content``."""
    return file.read


IMAGES = """
layer { name: "%s" type: "Data" top: "d" include { phase: %s }
  data_param { source: "%s" batch_size: 2 backend: LMDB } transform_param { mean_file: "mean" } }
"""
VOLUMES = 'layer { name: "v" type: "VolumeData" top: "v" volume_data_param { source: "%s" batch_size: 2 shape: 4 } }'
ROWS = 'layer { name: "c" type: "HDF5Data" top: "x" top: "y" hdf5_data_param { source: "list" batch_size: 2 } }'
NET = IMAGES % ("a", "TRAIN", "train") + IMAGES % ("b", "TEST", "test") + ROWS


def test_what_a_run_reads(tmp_path: Path) -> None:
    balance = 'parallel_param { balance: STATIC balance_param { profile: "speed" } }'
    path = write_run(tmp_path / "a", f'test_iter: 1 test_interval: 1 weights: "w1,w2" {balance}', NET)
    texts = Texts.read(lambda: read_plan(path))
    assert texts.plans.value
    assert texts.solver.value
    found = inputs_of(texts.plans.value, texts.solver.value, "s")
    assert [one.name for one in found] == [
        "LMDB train",
        "mean image mean",
        "HDF5 list list (x, y)",
        "LMDB test",
        "weights w1",
        "weights w2",
        "profile speed",
        "snapshot s",
    ]


def test_lists_of_volumes(tmp_path: Path) -> None:
    texts = Texts.read(lambda: read_plan(write_run(tmp_path / "a", "", VOLUMES % "list")))
    assert texts.plans.value and texts.solver.value
    (found,) = inputs_of(texts.plans.value, texts.solver.value)
    assert found.name == "list of volumes list"
    assert reading_of(found).func is volume_content
    assert reading_of(found).args == ("list", "")


OTHERS = """
layer { name: "i" type: "ImageData" top: "x" top: "y"
        image_data_param { source: "pictures" root_folder: "r/" batch_size: 1 } }
layer { name: "w" type: "WindowData" top: "u" top: "v" window_data_param { source: "windows" batch_size: 1 } }
layer { name: "l" type: "InfogainLoss" bottom: "x" bottom: "y" infogain_loss_param { source: "H" } }
"""


def test_images_windows_and_matrices(tmp_path: Path) -> None:
    texts = Texts.read(lambda: read_plan(write_run(tmp_path / "a", "", OTHERS)))
    assert texts.plans.value and texts.solver.value
    found = inputs_of(texts.plans.value, texts.solver.value)
    assert [(one.name, reading_of(one).func, reading_of(one).args) for one in found] == [
        ("list of images pictures", image_content, ("pictures", "r/")),
        ("window file windows", file_content, ("windows",)),
        ("infogain matrix H", file_content, ("H",)),
    ]


def test_what_ranks_of_the_outer_layer_read(tmp_path: Path) -> None:
    """Rank 0 tests and resumes; the others train, perhaps what it sends them."""

    def names(parallel: str, rank: int) -> list[str]:
        more = f'test_iter: 1 test_interval: 1 weights: "w" parallel_param {{ {parallel} }}'
        path = write_run(tmp_path / f"{parallel}{rank}".replace(" ", ""), more, NET)
        texts = Texts.read(lambda: read_plan(path), rank)
        assert texts.plans.value and texts.solver.value
        return [one.name for one in inputs_of(texts.plans.value, texts.solver.value, "s", rank)]

    trained = ["LMDB train", "mean image mean", "HDF5 list list (x, y)"]
    everything = [*trained, "LMDB test", "weights w", "snapshot s"]
    assert names("exchange: SGWU", 0) == names("exchange: SGWU ship_data: true", 0) == everything
    assert names("exchange: SGWU", 1) == trained
    assert names("exchange: SGWU ship_data: true", 1) == []
    assert names("exchange: TREE", 1) == everything


def check(hosts: str, *paths: Path) -> Section:
    """The section where rank r finds the LMDB "data" at ``paths[r]``."""

    def one(ranks: Ranks) -> Section:
        return check_inputs(
            ranks, read_inputs([CheckedInput("LMDB data", partial(lmdb_content, str(paths[ranks.world.rank])))])
        )

    return same(on_hosts(hosts, one))


@pytest.fixture
def lmdbs(tmp_path: Path) -> Path:
    """LMDBs "good", "copy" of it, "other" of another content and "short" of fewer records."""
    good = {b"%d" % key: b"x" for key in range(9)}
    write_records(tmp_path / "good", good)
    write_records(tmp_path / "copy", good)
    write_records(tmp_path / "other", good | {b"8": b"y"})
    write_records(tmp_path / "short", {b"0": b"x"})
    return tmp_path


def test_the_same_data(lmdbs: Path) -> None:
    finding = only(check("ab", lmdbs / "good", lmdbs / "copy"))
    assert finding.kind is Severity.OK
    assert finding.text == "LMDB data: 9 records, the same on all ranks"


def test_other_data(lmdbs: Path) -> None:
    section = check("abbc", lmdbs / "good", lmdbs / "short", lmdbs / "short", lmdbs / "other")
    assert texts_of(section, Severity.PROBLEM) == [
        "ranks 1-2 on host b: LMDB data has another content than on rank 0 on host a: 1 record, not 9 records",
        "rank 3 on host c: LMDB data has another content than on rank 0 on host a: 9 records too",
    ]


def test_data_that_are_missing_on_one_rank(lmdbs: Path) -> None:
    finding = only(check("abc", lmdbs / "good", lmdbs / "none", lmdbs / "good"))
    assert finding.kind is Severity.PROBLEM
    assert finding.text == f"rank 1 on host b: {lmdbs}/none: no such folder"
    assert "folder that all hosts share" in finding.remedy


def test_data_that_are_missing_everywhere(lmdbs: Path) -> None:
    finding = only(check("ab", lmdbs / "none", lmdbs / "none"))
    assert finding.text == f"{lmdbs}/none: no such folder"
    assert "check the path" in finding.remedy


def test_data_that_one_rank_reads(lmdbs: Path) -> None:
    def check_with(*readers: int, name: str = "good") -> Finding:
        one = CheckedInput("LMDB data", partial(lmdb_content, str(lmdbs / name)))
        hosts = "abc"
        return only(
            same(on_hosts(hosts, lambda r: check_inputs(r, read_inputs([one] if r.world.rank in readers else []))))
        )

    assert check_with(0).text == "LMDB data: 9 records, read by rank 0 only"
    assert check_with(0, 2).text == "LMDB data: 9 records, read by ranks 0, 2 only"
    missing = check_with(0, name="none")
    assert missing.text == f"rank 0 on host a: {lmdbs}/none: no such folder"
    assert "check the path" in missing.remedy


def test_a_net_without_files() -> None:
    assert only(same(on_hosts("ab", lambda ranks: check_inputs(ranks, {})))).text == "the nets read no files"


def test_snapshots_to_resume_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights are found where the state says, or beside it; both count."""
    monkeypatch.chdir(tmp_path)
    for end in ("solverstate", "caffemodel"):
        shutil.copy(GOLDEN / f"cli/inputs/lenet_iter_30.{end}", tmp_path)
    (snapshot,) = inputs_of({}, read_plan(write_run(tmp_path / "a")), "lenet_iter_30.solverstate")
    content = snapshot.read()
    os.chmod("lenet_iter_30.caffemodel", 0o644)
    with open("lenet_iter_30.caffemodel", "ab") as file:
        file.write(b"\0")
    assert snapshot.read().digest != content.digest
    os.unlink("lenet_iter_30.caffemodel")
    assert "no such file" in read_inputs([snapshot])[snapshot.name][1]


def snapshots(hosts: str, prefix: Path, nbytes: int | None = None, **fields: Any) -> Section:
    param = RunPlan(snapshot_prefix=str(prefix), **fields)
    section = same(on_hosts(hosts, lambda ranks: check_snapshots(ranks, param, nbytes)))
    for folder in (prefix.parent, prefix.parent.parent):
        assert not list(folder.glob(".bpt-doctor*")), "something is left"
    return section


def test_a_folder_for_snapshots(tmp_path: Path) -> None:
    finding = only(snapshots("ab", tmp_path / "x"))
    assert finding.text == f'rank 0 can write snapshots under "{tmp_path}/x"'
    finding = only(snapshots("ab", tmp_path / "made/later/x", nbytes=2_000_000))
    assert finding.kind is Severity.OK
    assert "one takes 2 MB" in finding.text
    assert not (tmp_path / "made").exists()


def test_a_folder_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: str) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(files, "_touch", refuse)
    finding = only(snapshots("ab", tmp_path / "x"))
    assert finding.kind is Severity.PROBLEM
    assert finding.text.startswith("rank 0 on host a, which writes snapshots, cannot write")
    assert "Permission denied" in finding.text


def test_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = namedtuple("usage", "free")
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: usage(5_000_000))
    finding = only(snapshots("a", tmp_path / "x", nbytes=6_000_000))
    assert finding.kind is Severity.PROBLEM
    assert finding.text == f"a snapshot takes 6 MB, but there is room for 5 MB at {tmp_path}"
    finding = only(snapshots("a", tmp_path / "x", nbytes=2_000_000, snapshot=10))
    assert finding.kind is Severity.WARNING
    assert finding.text == f"there is room for 2 snapshots of 2 MB at {tmp_path}"


def test_a_folder_that_is_not_shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    there = os.path.exists
    monkeypatch.setattr(os.path, "exists", lambda path: this_rank() != 2 and there(path))
    section = snapshots("aab", tmp_path / "x")
    (text,) = texts_of(section, Severity.NOTE)
    assert text.startswith(f"rank 2 on host b: files that rank 0 writes under {tmp_path} are not visible there")
    outer = ParallelSpec(exchange=pb.ParallelParameter.AGWU)
    assert only(snapshots("aab", tmp_path / "x", parallel_param=outer)).kind is Severity.OK  # rank 0 alone resumes


def test_no_snapshots(tmp_path: Path) -> None:
    finding = only(snapshots("a", tmp_path / "x", snapshot_after_train=False))
    assert finding.kind is Severity.NOTE
