"""Runs with schedules, rules and averages that Caffe does not have: on ranks, shards and stages as on one process, and
resumed in the middle bit for bit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bpt.config.proto import bpt_pb2 as pb
from tests.support.spread_runs import Saved, assert_same_lines, read_model, set_up, train

DOUBLE = "precision: FLOAT64 max_iter: 6 iter_size: 1"
AVERAGE = "average_param { decay: 0.6 start: 2 }"
LARC = f"larc: true larc_eta: 0.1 larc_turbo: true {AVERAGE}"
LAMB = (
    'type: "LAMB" delta: 1e-4 lr_policy: "cosine" cosine_param { period: 3 growth: 2 } '
    "average_param { kind: SWA start: 2 interval: 3 }"
)
SPREAD = {
    "2 shards": (2, "num_shards: 2"),
    "2 stages": (2, "num_stages: 2 pipeline_param { micro_batches: 2 batch_norm_over: BATCH }"),
    "tree": (3, "exchange: TREE"),
    "sharded update": (3, "update: SHARDED"),
    "all": (4, "num_shards: 2 exchange: RING"),
}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    set_up(tmp_path)


def average(iteration: int) -> dict[str, np.ndarray]:
    net = pb.NetParameter.FromString(Path(f"small_iter_{iteration}_average.caffemodel").read_bytes())
    return {f"{layer.name}/{i}": np.array(blob.data) for layer in net.layer for i, blob in enumerate(layer.blobs)}


@pytest.mark.parametrize("settings", [LARC, LAMB], ids=["LARC, EMA, clip", "LAMB, SWA, cosine, clip"])
def test_many_ranks_train_as_one_process(settings: str) -> None:
    """Weights, moments and averages, which are tested, too; the gradients are clipped."""
    alone = train(1, DOUBLE, settings)
    saved, averaged = Saved.read(6), average(6)
    assert sum("Testing average of weights" in line.words for line in alone.lines) == 1
    for name, (ranks, parallel) in SPREAD.items():
        spread = train(ranks, DOUBLE, settings, f"parallel_param {{ {parallel} }}")
        assert_same_lines(spread.lines, alone.lines, 1e-5)
        Saved.read(6).check(saved, 1e-5)
        for blob, values in average(6).items():
            size = np.abs(averaged[blob]).max()
            np.testing.assert_allclose(values, averaged[blob], rtol=0, atol=1e-5 * size, err_msg=f"{name}: {blob}")


@pytest.mark.parametrize(
    "settings",
    [
        f'{LARC} momentum_policy: "poly" max_momentum: 0.95 weight_decay_policy: "poly"',
        LAMB,
        'type: "AdamW" lr_policy: "onecycle" momentum_policy: "onecycle" max_momentum: 0.95',
        'lr_policy: "plateau" plateau_winsize: 2 plateau_winsize: 1 plateau_winsize: 1 gamma: 0.9 base_lr: 1 '
        'snapshot_best: "accuracy" early_stopping_param { patience: 9 }',
        'lr_policy: "multifixed" stagelr: 0.05 stageiter: 6 stagelr: 0.01 stageiter: 9 rampup_interval: 7 '
        'rampup_lr: 0.001 momentum_policy: "opt" weight_decay_policy: "poly" max_weight_decay: 0.01',
        f'local_lr_auto: true local_gw_ratio: 0.1 warmup_iter: 7 lr_policy: "poly" power: 2 min_lr: 0.01 {AVERAGE}',
    ],
    ids=["LARC", "LAMB", "AdamW", "plateau", "multifixed", "LARS"],
)
@pytest.mark.parametrize("form", ["BINARYPROTO", "HDF5"])
def test_a_resumed_run_goes_on_bit_for_bit(settings: str, form: str) -> None:
    """After 5 of 9 iterations: the window of a plateau, the way up and a cosine's period are not at their ends."""
    if form == "HDF5" and not settings.startswith(("lr_policy", "larc")):
        pytest.skip("one with moments and one with a loss is enough")
    suffix = ".h5" if form == "HDF5" else ""
    settings = f"{settings} snapshot: 5 snapshot_format: {form}"
    train(1, settings)
    names = [path.name for path in Path().glob("small_iter_9*")]
    whole = {name: Path(name).read_bytes() for name in names if "caffemodel" in name}
    last = Saved.read(9) if form == "BINARYPROTO" else None
    train(1, settings, resume=f"small_iter_5.solverstate{suffix}")
    assert whole
    for name, content in whole.items():
        assert Path(name).read_bytes() == content
    if last is not None:
        again = Saved.read(9)
        assert again.rest == last.rest
        for ours, theirs in zip(again.history, last.history, strict=True):
            np.testing.assert_array_equal(ours, theirs)


def test_the_best_is_kept_and_training_ends() -> None:
    """By a learning rate that ruins the net: the loss is best before training, and two tests later it is enough."""
    text = 'base_lr: 50 clip_gradients: -1 test_interval: 2 snapshot_best: "loss" early_stopping_param { patience: 2 }'
    run = train(1, text, "snapshot_after_train: false")
    assert run.iterations == [4]
    words = [line for line in run.log if "best loss" in line or "so training ends" in line]
    assert words[0].startswith("Iteration 0, best loss = ")
    assert words[1].startswith("Iteration 4, loss = ")
    assert words[1].endswith("at iteration 0 for 2 tests, so training ends")
    state = pb.SolverState.FromString(Path("small_best.solverstate").read_bytes())
    assert (state.iter, state.best_iter, state.last_test, state.tests_since_best) == (0, 0, 0, 0)
    assert Path("small_best.caffemodel").exists()
    assert not list(Path().glob("small_iter_*"))


def test_old_snapshots_of_the_run_go() -> None:
    """Those of other runs stay; a resumed run goes on with those of the one before."""
    train(1, "max_iter: 3 snapshot: 3")
    text = f"max_iter: 8 snapshot: 2 max_snapshots: 2 {AVERAGE}"
    train(1, text)

    def names() -> list[str]:
        return sorted(path.name for path in Path().glob("small_iter_*.solverstate"))

    assert names() == ["small_iter_3.solverstate", "small_iter_6.solverstate", "small_iter_8.solverstate"]
    assert not Path("small_iter_4_average.caffemodel").exists()
    assert not Path("small_iter_4.caffemodel").exists()
    train(1, text, "max_iter: 9", resume="small_iter_8.solverstate")
    assert names() == ["small_iter_3.solverstate", "small_iter_8.solverstate", "small_iter_9.solverstate"]


def test_a_run_with_an_average_goes_on_from_one_without_and_back() -> None:
    train(1, "max_iter: 5")
    before = read_model(5)
    run = train(1, "max_iter: 6", "average_param { decay: 0.5 }", resume="small_iter_5.solverstate")
    assert any("it begins with the weights themselves" in line for line in run.log)
    after, mean = read_model(6), average(6)
    for name, values in mean.items():
        np.testing.assert_allclose(values, (before[name] + after[name]) / 2, rtol=1e-5, atol=1e-7)
    assert train(1, "max_iter: 7", resume="small_iter_6.solverstate").iterations == [7]
