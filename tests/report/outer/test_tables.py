"""CSV files of a run: written, read, refused."""

from __future__ import annotations

import csv
import math
from dataclasses import replace
from pathlib import Path

import pytest

from bpt.errors import FileError, WriteError
from bpt.report.outer import RunRecord, read_csv, write_csv
from tests.report.outer.runs import scored, small_run


def test_files(tmp_path: Path) -> None:
    write_csv(small_run(), tmp_path / "new" / "folder")
    folder = tmp_path / "new" / "folder"
    assert sorted(path.name for path in folder.iterdir()) == [
        "allocation.csv", "nodes.csv", "summary.csv", "tests.csv", "updates.csv",
    ]  # fmt: skip
    assert (folder / "updates.csv").read_text().splitlines()[:2] == [
        "version,seconds_since_start,worker,host,base,staleness,gamma,accuracy,factor,passes,samples,seconds,waited,"
        "loss,moved",
        "1,2.0,0,host0,0,0,0.5,0.5,0.25,1.0,10,2.0,0.25,1.5,2048",
    ]
    assert (folder / "nodes.csv").read_text().splitlines()[2] == "1,host1,20,3.0,11.0,0.6,0.0,3,3072,3072,"
    assert (folder / "tests.csv").read_text().splitlines()[2] == "4.5,10,1.0,2,1,1.0,0.1,"  # no AUC
    assert (
        folder / "allocation.csv"
    ).read_text() == "batch,seconds,worker,samples,total\n1,0.0,0,30,30\n1,0.0,1,20,20\n"
    with (folder / "summary.csv").open(newline="") as file:
        lines = list(csv.reader(file))
    assert lines[0] == ["name", "value", "unit"]
    assert ["waiting_time_eq_8", "3.0", "s"] in lines


def test_what_was_written_is_read(tmp_path: Path) -> None:
    record = small_run(title='a "title", with commas\nand lines')
    record.tests = [row for row in record.tests if not math.isnan(row.auc)]  # NaN is not equal to itself
    record.updates[0] = replace(record.updates[0], host="node,1", seconds=0.1 + 0.2)
    record.nodes = [replace(row, lost=2.5) for row in record.nodes]
    record.facts["weights"] = "a setting called like a quantity"
    write_csv(record, tmp_path)
    assert read_csv(tmp_path) == record


def test_nan_is_an_empty_cell(tmp_path: Path) -> None:
    record = RunRecord(seconds=1.0, tests=[scored(1.0, 1.0, math.nan)])
    write_csv(record, tmp_path)
    (row,) = read_csv(tmp_path).tests
    assert math.isnan(row.accuracy) and math.isnan(row.auc)
    assert (row.seconds, row.loss) == (1.0, 1.0)


def test_an_empty_run(tmp_path: Path) -> None:
    write_csv(RunRecord(), tmp_path)
    assert read_csv(tmp_path) == RunRecord(seconds=0.0)


def test_an_older_run_is_replaced(tmp_path: Path) -> None:
    write_csv(small_run(), tmp_path)
    write_csv(RunRecord(), tmp_path)
    assert read_csv(tmp_path).updates == []


def test_what_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(WriteError, match="file"):
        write_csv(small_run(), tmp_path / "file")
    (tmp_path / "folder" / "tests.csv").mkdir(parents=True)
    with pytest.raises(WriteError, match=r"tests\.csv"):
        write_csv(small_run(), tmp_path / "folder")


@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        ("updates.csv", "1,2.0,0,host0", "1,soon,0,host0", r'updates\.csv:2: seconds_since_start is "soon", which is'),
        ("nodes.csv", "1,host1,20", "1,host1,20.5", r'nodes\.csv:3: samples_allocated is "20\.5", which is no whole'),
        ("tests.csv", "seconds,", "when,", r"tests\.csv: .*no column seconds"),
        ("allocation.csv", ",20,20", "", r"allocation\.csv:3: the row ends before the column samples"),
        ("summary.csv", "iterations,", "passes,", r'summary\.csv: .*no row "iterations"'),
        ("summary.csv", "weights,1024", "weights,", r'summary\.csv: weights is "", which is no whole number'),
        ("updates.csv", "host0", "\udcff", "updates"),
    ],
)
def test_what_is_no_run(tmp_path: Path, file: str, old: str, new: str, message: str) -> None:
    write_csv(small_run(), tmp_path)
    path = tmp_path / file
    text = path.read_text()
    assert old in text
    path.write_bytes(text.replace(old, new, 1).encode(errors="surrogateescape"))
    with pytest.raises(FileError, match=message):
        read_csv(tmp_path)


def test_a_file_is_missing(tmp_path: Path) -> None:
    write_csv(small_run(), tmp_path)
    (tmp_path / "nodes.csv").unlink()
    with pytest.raises(FileError, match=r"nodes\.csv: cannot be read"):
        read_csv(tmp_path)
