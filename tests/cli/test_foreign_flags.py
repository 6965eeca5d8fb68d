"""Flags of other programs, given to ``bpt train``, are answered with what to write here."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.commands import Bpt

BATCH = "lenet_train_test.prototxt:2:"


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        ("--lr 0.01", "write --set 'base_lr: 0.01'"),
        ("--lr=0.01", "write --set 'base_lr: 0.01'"),
        ("-learning-rate 1", "write --set 'base_lr: 1'"),
        ("--optimizer Adam", "write --set 'type: \"Adam\"'"),
        ("--amp", "write --set 'precision: AUTO'"),
        ("--max_iter 100", "write --set 'max_iter: 100'"),
        ("--snapshot-prefix a/b", "write --set 'snapshot_prefix: \"a/b\"'"),
        ("--patience 3", "in the solver it is early_stopping_param { patience: … }; --set '…' takes it, too"),
        ("--resume", "write --snapshot auto"),
        ("--resume run.solverstate", "write --snapshot run.solverstate"),
        ("--device cuda", "write --gpu 0"),
        ("--device cuda:1", "write --gpu 1"),
        ("--device=cpu", "write --set 'solver_mode: CPU'"),
        ("--device mps", "write --gpu 0, or --set 'solver_mode: CPU'"),
        ("--quiet", "write --set 'display: 0' for no losses, or --minloglevel 1 for warnings only"),
        ("--nproc 4", "write mpirun -n 4 bpt train --solver s.prototxt"),
        ("--nproc_per_node=2", "write mpirun -n 2 bpt train --solver s.prototxt"),
        ("--nproc", "write mpirun -n N bpt train --solver s.prototxt"),
        ("--epochs 3", "write --set 'max_iter: …', which counts iterations: epochs × samples of the data set / "
         "batch_size"),
        ("--batch-size 8", "write batch_size in the data layer of the network's text; --set 'iter_size: 2' adds up the "
         "gradients of 2 batches"),
        ("--data my/pictures", "write source in the data layer of the network's text; for a folder of pictures, "
         "bpt new my/pictures writes a network"),
    ],
)  # fmt: skip
def test_without_a_solver_that_can_be_read(words: str, hint: str, bpt: Bpt) -> None:
    outcome = bpt("train", "--solver", "s.prototxt", *words.split())
    assert outcome.error == f"unrecognized arguments: {words}; {hint}"
    assert (outcome.status, outcome.out) == (2, "")


def test_several_at_once(bpt: Bpt) -> None:
    outcome = bpt("train", "--lr", "0.1", "--solver=s.prototxt", "--resume")
    assert outcome.error.endswith("; --lr: write --set 'base_lr: 0.1'; --resume: write --snapshot auto")


def test_pairs_instead_of_flags(bpt: Bpt) -> None:
    outcome = bpt("train", "data=coco.yaml", "model=yolov8n.pt", "lr=0.1")
    assert "; bpt train takes flags: --solver FILE, and --set 'KEY: VALUE'" in outcome.error
    assert outcome.error.endswith("; lr: write --set 'base_lr: 0.1'") and outcome.status == 2


@pytest.mark.usefixtures("inputs")
def test_the_numbers_of_the_solvers_data(bpt: Bpt) -> None:
    """200 digits in batches of 20, by the network's text: 3 epochs are 30 iterations."""
    text = Path("lenet_train_test.prototxt").read_text()
    assert text.count("batch_size: 20") and "digits_train_lmdb" in text

    def hint(*words: str) -> str:
        outcome = bpt("train", "--solver=solver.prototxt", *words)
        assert outcome.status == 2
        return outcome.error.partition("; ")[2]

    counted = "which counts iterations: 3 × 200 samples / 20 an iteration"
    assert hint("--epochs", "3") == f"write --set 'max_iter: 30', {counted}"
    place = f"change batch_size of layer 'digits', {BATCH}"
    assert hint("--batch_size=60").startswith(f"write --set 'iter_size: 3', or {place}")
    assert hint("--batch_size=50").startswith(place)
    assert hint("--data", "other").startswith(f"change source of layer 'digits', {BATCH}")


def test_other_commands_answer_as_before(bpt: Bpt) -> None:
    assert bpt("time", "--lr", "1").error == 'unrecognized arguments: --lr 1; did you mean "--solver"?'
