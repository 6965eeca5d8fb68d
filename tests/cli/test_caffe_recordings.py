"""The commands that were recorded from a real Caffe: the same numbers in the log, the same products.

``train_random_init`` draws its weights at random, the two ``sigint`` cases depend on when the signal came,
``time_*`` print times, and ``train_resume_h5`` starts from a file that ``train_opts_h5_avgloss`` writes.
These are tested elsewhere by what they do.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from tests.cli.caffe_log import numbers
from tests.support.commands import Bpt
from tests.support.paths import GOLDEN

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
    texts = [line.partition("] ")[2] for line in outcome.err.splitlines()]
    loss = [place for place, text in enumerate(texts) if text.startswith("Loss: ")]
    assert outcome.out.splitlines() == (texts[loss[0] :] if loss else [])  # the means of a test
    if name == "train_bad_no_test_iter":  # starts from random weights: only the shape of the log can be equal
        assert [label for label, _ in ours] == [label for label, _ in theirs]
        return
    assert [label for label, _ in ours] == [label for label, _ in theirs]
    assert [value for _, value in ours] == pytest.approx([value for _, value in theirs], rel=1e-3)
    assert len(ours) > 3


# What each mistake that the recordings make is answered with; Caffe aborts with a stack trace.
NO_GPU = "this machine has no usable CUDA device; leave --gpu out to compute on the CPU"
MISTAKES = {
    "device_query_gpu0": f"--gpu 0: {NO_GPU}",
    "unknown_action": 'unknown command "frobnicate" (known: new, train, test, time, check, doctor, simulate, plan, '
    "classify, detect, explain, deploy, export, draw, plot, report, watch, convert, summary, example, device_query, "
    "completion, help, compare, run, join, stop)",
    "unknown_flag": "unrecognized arguments: --frob=1 (bpt train --help explains)",
    "train_no_solver": "bpt train needs --solver: the text file that says what to train and how",
    "train_solver_file_missing": "nope.prototxt: no such file",
    "train_weights_and_snapshot": "--snapshot resumes a run, --weights starts a new one from a model: give one of them",
    "train_weights_missing": 'nope.caffemodel: no such file; did you mean "init.caffemodel"?',
    "train_snapshot_missing": 'nope.solverstate: no such file; did you mean "lenet_opts_iter_60.solverstate.h5"?',
    "train_weights_shape_mismatch": (
        "init.caffemodel: Cannot copy param 0 weights from layer 'ip1'; shape mismatch.  Source param shape is 48 256 "
        "(12288); target param shape is 47 256 (12032). To learn this layer's parameters from scratch rather than "
        "copying from a saved net, rename the layer."
    ),
    "train_gpu_in_cpu_build": f"--gpu 0: {NO_GPU}",
    "test_no_model": "bpt test needs --model: the network to score",
    "test_no_weights": "bpt test needs --weights: the trained model to score",
    "time_no_model": "bpt time needs one of --model and --solver: what to time",
    "train_bad_unknown_layer": (
        'bad_unknown_layer.prototxt:9:23: layer "relu1": unknown layer type "ReLUX"; did you mean "ReLU"?'
    ),
    "train_bad_net_unknown_field": (
        'bad_net_unknown_field.prototxt:8:148: InnerProductParameter has no field "frobnicate"'
    ),
    "train_bad_unknown_bottom": (
        'bad_unknown_bottom.prototxt:8:42: layer "ip1": no earlier layer makes bottom "pool99"; did you mean "pool2"?'
    ),
    "train_bad_missing_lmdb": (
        'bad_missing_lmdb.prototxt:2:138: layer "digits": no_such_lmdb: no such folder (looked for HERE/no_such_lmdb)'
    ),
    "train_bad_dup_top": ('bad_dup_top.prototxt:11:53: layer "dup": top "pool1" is already made by layer "pool1"'),
    "train_bad_no_num_output": 'bad_no_num_output.prototxt:8:111: layer "ip1": needs num_output, at least 1',
    "train_bad_too_few_bottoms": (
        'bad_too_few_bottoms.prototxt:12:46: layer "loss": SoftmaxWithLoss takes 2 to 3 bottoms, given 1 (ip2)'
    ),
    "train_bad_eltwise_shape": (
        'bad_eltwise_shape.prototxt:11:49: layer "e": bottoms must have one shape: "ip2" (20, 10) and "ip1" (20, 48)'
    ),
    "train_bad_label_count": (
        'bad_label_count.prototxt:12:62: layer "loss": number of labels (20) must match number of predictions (1280): '
        '"conv2" (20, 16, 8, 8) and "label" (20,). If the axis of the classes is 1 and predictions are (N, C, H, W), '
        "there must be N*H*W labels, integers in 0 ... C-1"
    ),
    "train_bad_syntax": (
        'bad_syntax.prototxt:3:1: expected a field of LayerParameter or the "}" that closes the "{" of line 2, '
        "found: the end"
    ),
    "train_bad_bad_enum": 'bad_bad_enum.prototxt:5:90: "pool" takes one of MAX, AVE, STOCHASTIC, found: MEDIAN',
    "train_bad_kernel_too_big": (
        'bad_kernel_too_big.prototxt:6:149: layer "conv2": a kernel that reaches over (50, 50) is bigger than the '
        "bottom of shape (20, 8, 12, 12) with pad (0, 0)"
    ),
    "train_bad_no_kernel": ('bad_no_kernel.prototxt:6:114: layer "conv2": needs kernel_size, or kernel_h and kernel_w'),
    "train_bad_bad_group": (
        'bad_bad_group.prototxt:6:164: layer "conv2": the 8 channels of a bottom of shape (20, 8, 12, 12) do not '
        "divide into 3 groups"
    ),
    "train_bad_no_net": (
        "solver_no_net.prototxt:1:1: name the net to train by one of net, net_param, train_net, train_net_param: "
        "none of them is set"
    ),
    "train_bad_bad_type": 'solver_bad_type.prototxt:16:1: unknown solver type "SGDX"; did you mean "SGD"?',
    "train_bad_bad_policy": (
        'solver_bad_policy.prototxt:7:1: unknown lr_policy "warp" '
        "(known: cosine, exp, fixed, inv, multifixed, multistep, onecycle, plateau, poly, sigmoid, step)"
    ),
    "train_bad_no_policy": (
        "solver_no_policy.prototxt:1:1: lr_policy is not set; "
        "use one of cosine, exp, fixed, inv, multifixed, multistep, onecycle, plateau, poly, sigmoid, step"
    ),
    "train_bad_missing_net_file": (
        "solver_missing_net_file.prototxt:1:1: no_such_net.prototxt: no such file "
        "(looked for HERE/no_such_net.prototxt)"
    ),
    "train_bad_unknown_field": (
        'solver_unknown_field.prototxt:16:1: SolverParameter has no field "warmup_iters"; did you mean "warmup_iter"?'
    ),
    "train_bad_adagrad_momentum": (
        "solver_adagrad_momentum.prototxt:5:1: momentum cannot be used with AdaGrad; leave it out"
    ),
}


def test_every_recorded_failure_is_covered() -> None:
    failed = {name for name, case in CASES.items() if case["rc"] not in (0, -15)}
    assert failed - set(MISTAKES) == {"help"}  # bpt --help is no failure


@pytest.mark.parametrize("name", sorted(MISTAKES))
def test_a_mistake_is_answered_in_one_line(name: str, bpt: Bpt, inputs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    outcome = bpt(*CASES[name]["args"])
    assert outcome.error.replace(str(inputs), "HERE") == MISTAKES[name]
    assert outcome.status == 2
