"""Each of these networks trains for 20 iterations through the solver: losses are numbers, and fall where they can."""

from __future__ import annotations

import logging
import math
import re
import sys
from pathlib import Path

import pytest
import torch

from bpt.config.plan.resolve import read_plan
from bpt.train.solver.solver import Solver
from tests.support.paths import PROTOTXT

HERE = Path(__file__).parent
NETS = sorted(path.stem for path in HERE.glob("*.prototxt"))
# How much of the first losses the last may be. The labels are constant: even a bias learns them.
REMAINS = {"fcn": math.inf}  # its labels are random
SOLVER = """
net: "{net}" base_lr: {rate} lr_policy: "inv" gamma: 0.0001 power: 0.75 momentum: 0.9 weight_decay: 0.0005 {more}
display: 1 max_iter: 20 random_seed: 3 snapshot_after_train: false clip_gradients: 10
"""
RATES = {"fcn": 1e-4, "siamese_v1": 0.005, "segnet": 0.05, "ssd": 0.02, "googlenet": 0.001}
GOOGLENET_DATA = """layer { name: "data" type: "DummyData" top: "data" top: "label" dummy_data_param {
  shape { dim: 1 dim: 3 dim: 224 dim: 224 } shape { dim: 1 } data_filler { type: "gaussian" std: 1 }
  data_filler { type: "constant" value: 7 } } }
"""


def train(tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str, net: Path) -> list[float]:
    """The loss of each iteration."""
    text = SOLVER.format(net=net, rate=RATES.get(name, 0.1), more="iter_size: 2" if name == "two_inputs" else "")
    (tmp_path / "solver.prototxt").write_text(text)
    with caplog.at_level(logging.INFO, "bpt"), Solver(read_plan(tmp_path / "solver.prototxt")) as solver:
        before = [parameter.detach().clone() for parameter in solver.net.parameters()]
        solver.solve()
        after = list(solver.net.parameters())
        assert solver.iter == 20
    assert any(not torch.equal(old, new) for old, new in zip(before, after, strict=True))
    assert all(bool(new.isfinite().all()) for new in after)
    lines = "\n".join(record.getMessage() for record in caplog.records)
    return [float(loss) for loss in re.findall(r"^Iteration \d+ \(.*, loss = (\S+)", lines, re.MULTILINE)]


@pytest.mark.parametrize("name", NETS)
def test_trains(name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    losses = train(tmp_path, caplog, name, HERE / f"{name}.prototxt")
    sys.modules.pop("voc_like", None)
    assert len(losses) == 20
    assert all(map(math.isfinite, losses)), losses
    assert sum(losses[-5:]) < REMAINS.get(name, 0.7) * sum(losses[:5]), losses  # noise is new in every iteration


@pytest.mark.slow
def test_googlenet_with_its_three_losses(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    text = (PROTOTXT / "googlenet" / "train_val.prototxt").read_text()
    body = re.sub(r'layer \{\n  name: "data".*?\n\}\n', "", text, flags=re.DOTALL)
    assert body.count("SoftmaxWithLoss") == 3
    (tmp_path / "net.prototxt").write_text(GOOGLENET_DATA + body)
    losses = train(tmp_path, caplog, "googlenet", tmp_path / "net.prototxt")
    # Three losses of 1000 classes, weighted 0.3, 0.3 and 1.
    assert losses[0] == pytest.approx(1.6 * math.log(1000), rel=0.05)
    assert losses[-1] < 0.9 * losses[0]
