from __future__ import annotations

import math
from dataclasses import replace

from bpt.report.outer import NodeRow, RunRecord, quantities, summary_lines
from tests.report.outer.runs import KIB, small_run

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
