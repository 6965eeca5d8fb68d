"""A small language model as in LRCN, through the solver: Embed, LSTM or RNN, InnerProduct and SoftmaxWithLoss."""

from __future__ import annotations

import logging
import re
from pathlib import Path

import h5py
import numpy as np
import pytest
from numpy.typing import NDArray

from bpt.base.errors import LayerError
from bpt.config.plan.resolve import read_plan
from bpt.system.comm.base import Communicator
from bpt.train.runtime.train_options import TrainOptions
from bpt.train.solver.solver import Solver
from tests.support.doubles.thread_ranks import run_ranks

# The third word of a sentence is the same in both; what comes then only the first one tells.
SENTENCES = ((1, 2, 3, 4), (5, 2, 3, 6))
STREAMS, SENTENCES_A_STREAM = 4, 10

DATA = """layer { name: "data" type: "HDF5Data" top: "words" top: "cont" top: "target"
  hdf5_data_param { source: "list.txt" batch_size: 5 } }"""  # a pass of 5: sentences of three steps go on in the next
BODY = """
layer { name: "embed" type: "Embed" bottom: "words" top: "embedded"
  embed_param { num_output: 6 input_dim: 7 bias_term: false weight_filler { type: "uniform" min: -0.5 max: 0.5 } } }
layer { name: "recurrent" type: "LSTM" bottom: "embedded" bottom: "cont" top: "hidden"
  recurrent_param { num_output: 10 weight_filler { type: "uniform" min: -0.3 max: 0.3 } } }
layer { name: "scores" type: "InnerProduct" bottom: "hidden" top: "scores"
  inner_product_param { num_output: 7 axis: 2 weight_filler { type: "xavier" } } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "scores" bottom: "target" top: "loss"
  softmax_param { axis: 2 } loss_param { ignore_label: -1 } }
layer { name: "accuracy" type: "Accuracy" bottom: "scores" bottom: "target" top: "accuracy"
  accuracy_param { axis: 2 ignore_label: -1 } include { phase: TEST } }
"""
SOLVER = """
net: "net.prototxt" type: "Adam" base_lr: 0.02 lr_policy: "fixed" max_iter: 120 display: 1 random_seed: 6
test_iter: 6 test_interval: 120 test_initialization: false snapshot_prefix: "lrcn" engine: CONTIGUOUS
"""


def streams() -> dict[str, NDArray[np.float32]]:
    """Words, markers and targets, (30, 4) each; of the last stream the last sentence is padding."""
    choices = np.random.default_rng(2).integers(2, size=(SENTENCES_A_STREAM, STREAMS))
    sentences = np.array(SENTENCES)[choices]  # (sentences, streams, words)
    words = sentences[:, :, :3].transpose(0, 2, 1).reshape(-1, STREAMS)
    target = sentences[:, :, 1:].transpose(0, 2, 1).reshape(-1, STREAMS)
    cont = np.tile(np.array([[0], [1], [1]]), (SENTENCES_A_STREAM, STREAMS))
    words[-3:, -1], target[-3:, -1], cont[-3:, -1] = 0, -1, 0
    return {name: blob.astype(np.float32) for name, blob in (("words", words), ("cont", cont), ("target", target))}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    with h5py.File(tmp_path / "0.h5", "w") as file:
        for name, blob in streams().items():
            file[name] = blob
    (tmp_path / "list.txt").write_text(f"{tmp_path}/0.h5\n")
    (tmp_path / "net.prototxt").write_text(DATA + BODY)
    (tmp_path / "solver.prototxt").write_text(SOLVER)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def train(caplog: pytest.LogCaptureFixture, *overrides: str, resume: str = "") -> tuple[list[float], str]:
    """The loss of each iteration, and the whole log."""
    caplog.clear()
    with (
        caplog.at_level(logging.INFO, "bpt"),
        Solver(read_plan("solver.prototxt", overrides), TrainOptions(resume=resume)) as solver,
    ):
        solver.solve()
    log = "\n".join(record.getMessage() for record in caplog.records)
    return [float(loss) for loss in re.findall(r"^Iteration \d+.*, loss = (\S+)", log, re.MULTILINE)], log


@pytest.mark.parametrize("kind", ["LSTM", "RNN"])
def test_learns_what_only_memory_can_tell(kind: str, folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    (folder / "net.prototxt").write_text(DATA + BODY.replace("LSTM", kind))
    losses, log = train(caplog)
    assert losses[0] > 1.5
    # Who looks at the word before only gives each of two words a half at every third place: log 2 / 3 = 0.23.
    assert max(losses[-6:]) < 0.1
    assert "accuracy = 1\n" in log + "\n"


def test_resuming_where_all_streams_begin_continues_the_very_curve(caplog: pytest.LogCaptureFixture) -> None:
    straight, _ = train(caplog, "max_iter: 18 snapshot: 12")  # 12 passes of 5 steps: twice all 30 rows
    resumed, _ = train(caplog, "max_iter: 18", resume="lrcn_iter_12.solverstate")
    assert resumed == straight[12:]


def test_many_ranks_are_refused() -> None:
    def run(ranks: Communicator) -> str:
        with pytest.raises(LayerError) as caught:
            Solver(read_plan("solver.prototxt", ()), world=ranks)
        return str(caught.value)

    for message in run_ranks(2, run):
        assert 'layer "recurrent": axis 0 of its bottoms is the time, and the samples are along axis 1' in message
        assert "train on one process" in message
