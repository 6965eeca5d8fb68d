"""All recorded training runs of a real Caffe: rates, losses and weights, whole."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import numpy as np
import pytest

from tests.support.golden_cases import assert_close
from tests.support.training import SOLVERS, Trainer

RUNS: dict[str, dict[str, Any]] = {run["name"]: run for run in json.loads((SOLVERS / "runs.json").read_text())}

TOLERANCE = 1e-4  # a tenth of what the recordings ask for; rounding differs from one CPU's kernels to another's
# A bias before BatchNorm has a gradient of 0; Adam makes steps of ±rate of its rounding noise, and the running mean
# bn1/0 contains that bias. Whatever they are, they cancel in all that follows.
UNDETERMINED = {"Adam_bn": {"conv1/1", "bn1/0"}}


@cache
def arrays() -> dict[str, np.ndarray]:
    return dict(np.load(SOLVERS / "runs.npz"))


def recorded(run: str, moment: str) -> dict[str, np.ndarray]:
    prefix = f"{run}/{moment}/"
    return {key[len(prefix) :]: value for key, value in arrays().items() if key.startswith(prefix)}


@pytest.mark.parametrize("name", RUNS)
def test_run_follows_caffe(name: str) -> None:
    run = RUNS[name]
    trainer = Trainer(run["net"], run["solver"], SOLVERS / "data.h5")
    trainer.set_weights(recorded(name, "init"))
    losses = []
    for iteration in range(1, run["iters"] + 1):
        losses += trainer.step()
        moment = {1: "after1", 10: "after10", run["iters"]: "final"}.get(iteration)
        if moment:
            weights = trainer.weights
            assert set(weights) == set(recorded(name, moment))
            for blob, theirs in recorded(name, moment).items():
                if blob not in UNDETERMINED.get(name, ()):
                    assert_close(weights[blob], theirs, f"{moment}: {blob}", TOLERANCE)
    per_forward = np.array(losses, np.float32)
    assert_close(per_forward, arrays()[f"{name}/loss_per_forward"], "loss of each pass", TOLERANCE)
    mean = per_forward.reshape(run["iters"], -1).mean(1)
    assert_close(mean, arrays()[f"{name}/loss"], "loss", TOLERANCE)
