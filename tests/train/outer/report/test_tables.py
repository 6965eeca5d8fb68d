"""CSV files and a few numbers of a run."""

from __future__ import annotations

import csv
import math
from dataclasses import replace
from pathlib import Path

import pytest

from bpt.base.errors import FileError, WriteError
from bpt.train.outer.report import MigrationRow, NodeRow, RunRecord, quantities, read_csv, summary_lines, write_csv
from tests.train.outer.report.runs import KIB, scored, small_run

LINES = """\
Report: execution time 12 s, 2 nodes, 6 submissions, 6 versions
Report: worker 0 (host0): 30 samples, 3 passes, computing 8 s, waiting 0.6 s (5.0%), idle at the end 3.25 s
Report: worker 1 (host1): 20 samples, 3 passes, computing 11 s, waiting 0.6 s (5.0%), idle at the end 0 s
Report: waiting time by Eq. 8 3 s (if all wait for the slowest in each pass), balance index 0.8636
Report: 12,288 bytes of weights counted, 12,288 by Eq. 11 (2 · 1,024 · 2 nodes · 3 iterations)
Report: staleness 0.833 on average, 1 at most; factor 0.5 on average
Report: accuracy 0.8125, AUC 0.9688 in the last test, 0.8750 in the best"""


def test_lines() -> None:
    assert list(summary_lines(small_run())) == LINES.splitlines()


def test_a_node_that_was_lost() -> None:
    """It is not idle from then on, and Eq. 11 knows nothing of it."""
    record = small_run()
    record.nodes[1] = replace(record.nodes[1], passes=1.0, lost=4.5, bytes_sent=KIB, bytes_received=KIB)
    lines = list(summary_lines(record))
    assert lines[0].startswith("Report: execution time 12 s, 2 nodes (1 lost), 6 submissions")
    assert lines[2] == (
        "Report: worker 1 (host1): 20 samples, 1 pass, computing 11 s, waiting 0.6 s (5.0%), lost after 4.5 s"
    )
    assert lines[4] == (
        "Report: 8,192 bytes of weights counted, 12,288 by Eq. 11 (2 · 1,024 · 2 nodes · 3 iterations), which lets the "
        "lost ones submit to the end"
    )


def test_lines_without_tests_and_factors() -> None:
    record = small_run()
    record.tests.clear()
    record.updates[:] = [type(row)(**{**vars(row), "factor": math.nan}) for row in record.updates[:1]]
    lines = list(summary_lines(record))
    assert lines[0] == "Report: execution time 12 s, 2 nodes, 1 submission, 1 version"
    assert lines[-1] == "Report: staleness 0 on average, 0 at most"


def test_of_many_nodes_the_range() -> None:
    record = RunRecord(seconds=10.0)
    record.nodes += [NodeRow(w, "h", 100 + w, 1.0, 9.0, w / 100, 0.5, 1, 1, 1) for w in range(101)]
    assert list(summary_lines(record))[1] == (
        "Report: a worker (least, mean, most): 100, 150, 200 samples, computing 9, 9, 9 s, waiting 0, 0.5, 1 s "
        "(5.0% on average), idle at the end 0.5, 0.5, 0.5 s"
    )


def test_nothing_seen() -> None:
    lines = list(summary_lines(RunRecord()))
    assert lines[0] == "Report: execution time 0 s, 0 nodes, 0 submissions, 0 versions"
    assert len(lines) == 2


def test_quantities() -> None:
    found = {row.name: (row.value, row.unit) for row in quantities(small_run())}
    assert found == {
        "title": ("a run", "setting"),
        "exchange": ("AGWU", "setting"),
        "balance": ("IDPA", "setting"),
        "weights": (1024, "bytes"),
        "iterations": (3, "1"),
        "execution_time": (12.0, "s"),
        "nodes": (2, "1"),
        "updates": (6, "1"),
        "versions": (6, "1"),
        "computed": (19.0, "s"),
        "waited": (1.2, "s"),
        "idle_at_end": (3.25, "s"),
        "computed_share": (19 / 24, "1"),
        "waited_share": (1.2 / 24, "1"),
        "waiting_time_eq_8": (3.0, "s"),
        "balance_index": (19 / 22, "1"),
        "bytes_counted": (12288, "bytes"),
        "bytes_eq_11": (12288, "bytes"),
        "mean_staleness": (5 / 6, "versions"),
        "max_staleness": (1, "versions"),
        "mean_factor": (0.5, "1"),
        "last_accuracy": (0.8125, "1"),
        "best_accuracy": (0.875, "1"),
        "last_auc": (0.96875, "1"),
    }


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


def test_moves_of_samples_have_a_table_of_their_own(tmp_path: Path) -> None:
    """Also behind an older run in the same folder that had some."""
    moves = [
        MigrationRow(1.5, 2, 0, 14, 0.1, 0.4, 0.2, 0.1, 16.0, 5.5),
        MigrationRow(1.5, 2, 1, 13, 0.1, 0.4, 0.1, 0.1, 16, 5.5),
    ]
    write_csv(replace(small_run(), migration=moves), tmp_path)
    assert (tmp_path / "migration.csv").read_text().splitlines()[:2] == [
        "seconds,giver,taker,samples,giver_before,giver_now,taker_before,taker_now,longest_before,longest_after",
        "1.5,2,0,14,0.1,0.4,0.2,0.1,16.0,5.5",
    ]
    assert read_csv(tmp_path).migration == moves
    assert "Report: 27 samples migrated between workers, in 2 moves" in summary_lines(read_csv(tmp_path))
    write_csv(small_run(), tmp_path)
    assert read_csv(tmp_path).migration == []


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
