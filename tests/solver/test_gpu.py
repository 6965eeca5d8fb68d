"""Training on a CUDA device gives the CPU's curve."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from bpt.config.plan.resolve import read_plan
from bpt.train.runtime.train_options import TrainOptions
from bpt.train.solver.solver import Solver
from tests.golden_cases import GOLDEN


@pytest.mark.gpu
@pytest.mark.parametrize("engine", ["CONTIGUOUS", "CHANNELS_LAST"])
def test_recorded_curve(engine: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folder = GOLDEN / "snapshots" / "SGD_multistep"
    recorded = np.load(folder / "run.npz")
    monkeypatch.chdir(folder)
    overrides = [f'engine: {engine} snapshot: 0 snapshot_after_train: false snapshot_prefix: "{tmp_path}/snap"']
    with Solver(read_plan("solver.prototxt", overrides), TrainOptions(torch.device("cuda", 0))) as solver:
        for (layer, blob), value in solver.net.values_by_name().items():
            with torch.no_grad():
                value.copy_(torch.from_numpy(recorded[f"init/{layer}/{blob}"]))
        losses = []
        for _ in range(10):
            solver.step(1)
            losses.append(solver.runtime.nets.train[1].loss().item())
    np.testing.assert_allclose(losses, recorded["loss"][:10], rtol=1e-3)
