"""``debug_info``: every line that Caffe recorded, in its order, with its number.

The recording is cut in the middle of the first test, so ours must end with what stands behind the cut.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.cli.caffe_log import NUMBER
from tests.support.commands import Bpt
from tests.support.paths import GOLDEN

RECORDED = (GOLDEN / "cli" / "train_debug_info.stderr.txt").read_text().partition("...[cut]...\n")[2]
BLOB = re.compile(rf"(\[(?:Forward|Backward)\] Layer .*): {NUMBER}$")
TOTALS = re.compile(rf"\[Backward\] (All net params) .*\({NUMBER}, {NUMBER}\);.*\({NUMBER}, {NUMBER}\)$")
OTHER = re.compile(rf"(Iteration \d+)(?: \(.*\))?, loss = {NUMBER}$|(T\w+ net output #\d: \w+) = {NUMBER}")
Line = tuple[str, list[float]]


def lines_of(log: str) -> list[Line]:
    """Label and numbers of the debug lines and of those between them, in order."""
    found = []
    for line in log.splitlines():
        for pattern in (BLOB, TOTALS, OTHER):
            if match := pattern.search(line):
                label, *values = (group for group in match.groups() if group is not None)
                found.append((label, [float(value) for value in values]))
    return found


def debug_lines(log: str) -> list[str]:
    return [label for label, _ in lines_of(log) if label.startswith(("[", "All"))]


def assert_ends_with(ours: list[Line], theirs: list[Line]) -> None:
    ours = ours[-len(theirs) :]
    assert [label for label, _ in ours] == [label for label, _ in theirs]
    for (label, mine), (_, caffes) in zip(ours, theirs, strict=True):
        assert mine == pytest.approx(caffes, rel=1e-3), label


def test_the_recording_has_all_kinds_of_lines() -> None:
    labels = [label for label, _ in lines_of(RECORDED)]
    # Of testing 3 + 23 + 23 lines and 2 outputs; 18 of each of 3 passes forward; 15 of each of 2 backward, and its
    # totals; 3 losses and 2 outputs.
    assert len(labels) == 49 + 2 + 3 * 18 + 2 * (15 + 1) + 3 + 2
    assert "[Forward] Layer accuracy, top blob accuracy data" in labels
    assert "[Backward] Layer conv1, param blob 1 diff" in labels


@pytest.mark.usefixtures("inputs")
def test_training_and_its_tests_log_caffes_lines(bpt: Bpt) -> None:
    outcome = bpt("train", "--solver=solver_debug.prototxt", "--weights=init.caffemodel")
    assert outcome.status == 0
    ours = lines_of(outcome.err)
    assert len(ours) == len(lines_of(RECORDED)) + 4 * 23 - 49  # all of the 4 test batches
    assert_ends_with(ours, lines_of(RECORDED))


@pytest.mark.usefixtures("inputs")
def test_the_totals_are_errors_in_the_log_as_in_caffe(bpt: Bpt) -> None:
    log = bpt("train", "--solver=solver_debug.prototxt").err
    assert {line[0] for line in log.splitlines() if "All net params" in line} == {"E"}


@pytest.mark.usefixtures("inputs")
def test_only_displayed_iterations_are_looked_into(bpt: Bpt) -> None:
    quiet = "display: 2 max_iter: 4 test_interval: 100 test_initialization: false"
    outcome = bpt("train", "--solver=solver_debug.prototxt", "--set", quiet)
    # Iterations 0 and 2; not the last loss, since iteration 3 before it was not displayed.
    assert debug_lines(outcome.err).count("[Forward] Layer loss, top blob loss data") == 2
    assert "Iteration 4, loss" in outcome.err


def test_a_net_of_its_own_says_it_when_it_is_scored(bpt: Bpt, inputs: Path) -> None:
    net = inputs / "lenet_train_test.prototxt"
    net.write_text("debug_info: true\n" + net.read_text())
    outcome = bpt("test", "--model", net.name, "--weights=init.caffemodel", "--iterations=4")
    # The recorded run begins by scoring the same weights on the same 4 batches.
    recorded = lines_of(RECORDED)
    end = [label for label, _ in recorded].index("Test net output #0: accuracy")
    assert_ends_with([line for line in lines_of(outcome.err) if line[0].startswith("[")], recorded[:end])


def test_the_solver_decides_over_the_nets_own_wish(bpt: Bpt, inputs: Path) -> None:
    net = inputs / "lenet_train_test.prototxt"
    net.write_text("debug_info: true\n" + net.read_text())
    outcome = bpt("train", "--solver=solver_debug.prototxt", "--set", "debug_info: false")
    assert outcome.status == 0
    assert debug_lines(outcome.err) == []
