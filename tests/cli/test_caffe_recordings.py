"""The commands that were recorded from a real Caffe: the same numbers in the log, the same products.

``train_random_init`` draws its weights at random, the two ``sigint`` cases depend on when the signal came,
``time_*`` print times, and ``train_resume_h5`` starts from a file that ``train_opts_h5_avgloss`` writes.
These are tested elsewhere by what they do.
"""

from __future__ import annotations

import json

import pytest

from tests.cli.caffe_log import numbers
from tests.cli.conftest import Bpt
from tests.golden_cases import GOLDEN

SAME_NUMBERS = (
    "train_from_weights",
    "train_resume_snapshot",
    "train_opts_h5_avgloss",
    "train_resume_h5",
    "train_bad_no_test_iter",
    "test",
    "test_init_weights",
    "test_default_iterations_h5",
    "level_stage",
)
CASES = {case["name"]: case for case in json.loads((GOLDEN / "cli" / "cases.json").read_text())}


@pytest.mark.parametrize("name", SAME_NUMBERS)
@pytest.mark.usefixtures("inputs")
def test_the_log_has_caffes_numbers(name: str, bpt: Bpt) -> None:
    theirs = numbers((GOLDEN / "cli" / f"{name}.stderr.txt").read_text())
    outcome = bpt(*CASES[name]["args"])
    ours = numbers(outcome.err)
    assert outcome.status == 0, outcome.err
    assert outcome.out == ""
    if name == "train_bad_no_test_iter":  # starts from random weights: only the shape of the log can be equal
        assert [label for label, _ in ours] == [label for label, _ in theirs]
        return
    assert [label for label, _ in ours] == [label for label, _ in theirs]
    assert [value for _, value in ours] == pytest.approx([value for _, value in theirs], rel=1e-3)
    assert len(ours) > 3


# What each mistake that the recordings make is answered with; Caffe aborts with a stack trace.
MISTAKES = {
    "train_no_solver": "bpt train needs --solver: the text file that says what to train and how",
}


@pytest.mark.parametrize("name", sorted(MISTAKES))
@pytest.mark.usefixtures("inputs")
def test_a_mistake_is_answered_in_one_line(name: str, bpt: Bpt) -> None:
    outcome = bpt(*CASES[name]["args"])
    assert outcome.error == MISTAKES[name]
    assert outcome.status == 2
