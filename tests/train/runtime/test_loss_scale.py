"""Loss scaling in runs: in single precision a scaled run is the unscaled one bit by bit, whatever else it does.

What an overflow leaves is compared with a run in which that update was left out; FLOAT16 with FLOAT32.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

import bpt
from bpt.base.errors import PrototxtError
from bpt.config.plan.resolve import read_plan
from bpt.config.proto import bpt_pb2 as pb
from bpt.engine.optim import loss_scale
from bpt.system.device import CPU
from bpt.train.outer import train as train_outer
from bpt.train.runtime import half_precision
from bpt.train.runtime.train_options import TrainOptions
from bpt.train.solver.solver import Solver
from tests.support.doubles.thread_ranks import run_ranks
from tests.support.marks import slow
from tests.support.spread_runs import NET, read_model, read_state, remove_snapshots, train

pytestmark = pytest.mark.usefixtures("folder")

CUDA = torch.device("cuda", 0)
GPIPE = "num_stages: 2 pipeline_param { micro_batches: 1 }"
DELAYED = "num_stages: 2 pipeline_param { schedule: DELAYED }"
WAYS = [
    (1, ""),
    (1, "inner_param { engine: TASK_DAG num_threads: 2 }"),
    slow(2, ""),
    (2, "exchange: TREE"),
    slow(2, "exchange: RING"),
    (2, "exchange: CGDP cgdp_param { chunk_size: 1 }"),
    slow(2, "num_shards: 2"),
    (3, "num_shards: 3 fc_param { scheme: MASTER_SLAVE }"),
    (2, GPIPE),
    slow(2, DELAYED),
    (4, f"num_shards: 2 {DELAYED}"),
]


def scaled(*fields: str) -> None:
    Path("net.prototxt").write_text(NET + "\n".join(fields))


def trained(ranks: int, parallel: str = "", *overrides: str, each: Callable[[Solver], object] = bool) -> bytes:
    """The weights that a run leaves."""
    remove_snapshots()
    if "DELAYED" in parallel:
        overrides = (*overrides, "clip_gradients: -1", "iter_size: 1")
    train(ranks, f"parallel_param {{ {parallel} }}", "snapshot_diff: true", *overrides, each=each)
    (model,) = Path().glob("small_iter_*.caffemodel")
    return model.read_bytes()


@pytest.mark.parametrize(("ranks", "parallel"), WAYS)
def test_a_scaled_run_is_the_unscaled_one(ranks: int, parallel: str) -> None:
    plain = trained(ranks, parallel)
    scaled("global_grad_scale: 1024")
    assert trained(ranks, parallel) == plain
    scaled("global_grad_scale_adaptive: true")
    assert trained(ranks, parallel) == plain
    assert (read_state(9).loss_scale, read_state(9).finite_iterations) == (65536.0, 9)


def infinite_at(iteration: int, rank: int) -> Callable[[Solver], object]:
    """Let one element of a gradient of this rank be infinite, once."""

    def each(solver: Solver) -> None:
        runtime = solver.runtime
        honest = runtime.updater.rule.gradients

        def gradients(members: Sequence[int]) -> list[torch.Tensor]:
            found = honest(members)
            if runtime.iteration == iteration and runtime.world.rank == rank:
                found[0].view(-1)[0] = float("inf")
            return found

        runtime.updater.rule.gradients = gradients  # type: ignore[method-assign]

    return each


def without_update(iteration: int, ranks: tuple[int, ...]) -> Callable[[Solver], object]:
    """Leave an update out on these ranks."""

    def each(solver: Solver) -> None:
        runtime = solver.runtime
        honest = runtime.updater.rule.update

        def update(rate: float, of: int, members: Sequence[int], late: int | None = None) -> None:
            skips = runtime.iteration == iteration and runtime.world.rank in ranks
            runtime.updater.rule.skip() if skips else honest(rate, of, members, late)

        runtime.updater.rule.update = update  # type: ignore[method-assign,assignment]

    return each


@pytest.mark.parametrize(
    ("ranks", "parallel", "hit", "skipping"),
    [
        (1, "", 0, (0,)),
        (2, "exchange: TREE", 0, (0, 1)),
        (2, "num_shards: 2", 1, (0, 1)),
        (2, GPIPE, 1, (0, 1)),
        (2, DELAYED, 0, (0,)),  # stages are at different batches
        (4, f"num_shards: 2 {DELAYED}", 3, (2, 3)),
    ],
)
def test_an_infinite_gradient_leaves_an_update_out(
    ranks: int, parallel: str, hit: int, skipping: tuple[int, ...], caplog: pytest.LogCaptureFixture
) -> None:
    plain = trained(ranks, parallel, each=without_update(4, skipping))
    scaled("global_grad_scale_adaptive: true global_grad_scale: 4096")
    assert trained(ranks, parallel, each=infinite_at(4, hit)) == plain
    state = read_state(9)
    assert state.loss_scale == 2048.0
    # With a delay all know at iteration 6, and what the next three tell may be of the old scale.
    assert state.finite_iterations == (0 if "DELAYED" in parallel else 4)


def test_the_log_says_what_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loss_scale, "GROWS_AFTER", 3)
    scaled("global_grad_scale_adaptive: true global_grad_scale: 4096")
    run = train(2, each=infinite_at(4, 1))
    assert [line for line in run.log if line.startswith("Loss scale")] == [
        "Loss scale: 4096, dynamic",
        "Loss scale: 8192, after 3 iterations with finite gradients",
        "Loss scale: 4096, since a gradient of iteration 4 is not finite; its update is left out",
        "Loss scale: 8192, after 3 iterations with finite gradients",
    ]


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_run_goes_on_from_its_snapshot_bit_for_bit(ranks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loss_scale, "GROWS_AFTER", 3)
    monkeypatch.setattr(half_precision, "without_half", lambda device, dtype: "")
    train(ranks, "precision: FLOAT16", "snapshot: 5", each=infinite_at(2, 0))
    weights, state = Path("small_iter_9.caffemodel").read_bytes(), read_state(9)
    middle = read_state(5)
    assert (middle.loss_scale, middle.finite_iterations) == (32768.0, 2)
    train(ranks, "precision: FLOAT16", resume="small_iter_5.solverstate")
    assert Path("small_iter_9.caffemodel").read_bytes() == weights
    assert (read_state(9).loss_scale, read_state(9).finite_iterations) == (state.loss_scale, state.finite_iterations)
    assert state.loss_scale == 131072.0  # after 6 and 9 iterations


def test_float16_follows_float32_where_the_loss_is_scaled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gradients of a loss of weight 1e-7 are nothing in float16, unless it is scaled."""
    monkeypatch.setattr(half_precision, "without_half", lambda device, dtype: "")
    small = NET.replace('top: "loss" }', 'top: "loss" loss_weight: 1e-7 }')
    rate = "base_lr: 5e5", "weight_decay: 0", "clip_gradients: -1"

    def change(*fields: str, precision: str = "FLOAT16") -> dict[str, np.ndarray]:
        Path("net.prototxt").write_text(small + " ".join(fields))
        before: dict[str, np.ndarray] = {}

        def note(solver: Solver) -> None:
            values = solver.net.values_by_name().items()
            before.update(
                {f"{layer}/{blob}": value.detach().numpy().reshape(-1).copy() for (layer, blob), value in values}
            )

        trained(1, "", *rate, f"precision: {precision}", each=note)
        return {name: values - before[name] for name, values in read_model(9).items() if not name.startswith("bn")}

    true, by_scale, unscaled = change(precision="FLOAT32"), change(), change("global_grad_scale: 1")
    for name, values in true.items():
        size = np.abs(values).max()
        np.testing.assert_allclose(by_scale[name], values, rtol=0, atol=0.1 * size, err_msg=name)
    assert np.abs(unscaled["conv/0"]).max() < 0.1 * np.abs(true["conv/0"]).max()


def test_whoever_looks_at_diffs_sees_true_ones(caplog: pytest.LogCaptureFixture) -> None:
    def seen() -> tuple[list[str], dict[str, np.ndarray], dict[str, np.ndarray]]:
        caplog.clear()
        with caplog.at_level("INFO", "bpt"):
            solver = bpt.get_solver("solver.prototxt")
            solver.step(3)
            train(1, "debug_info: true")
        lines = [line for line in caplog.messages if "diff" in line or "clipping" in line]
        diffs = {name: blob.diff.copy() for name, blob in solver.net.blobs.items()}
        return lines, diffs, {name: blobs[0].diff.copy() for name, blobs in solver.net.params.items()}

    lines, diffs, params = seen()
    scaled("global_grad_scale: 64")
    assert lines and any("Backward" in line for line in lines)
    scaled_lines, scaled_diffs, scaled_params = seen()
    assert scaled_lines == lines
    for name, values in diffs.items():
        np.testing.assert_array_equal(scaled_diffs[name], values, err_msg=name)
        assert name in ("data", "label") or values.any()
    for name, values in params.items():
        np.testing.assert_array_equal(scaled_params[name], values, err_msg=name)


@pytest.mark.parametrize("exchange", ["ASGD", slow("AGWU"), slow("SGWU")])
def test_workers_submit_true_gradients(exchange: str) -> None:
    def weights() -> dict[str, np.ndarray]:
        overrides = "parallel_param { sync_batch_norm: false }", f"parallel_param {{ exchange: {exchange} }}"
        plan = read_plan("solver.prototxt", (*overrides, "snapshot_prefix: 'small'"))
        run_ranks(2, lambda world: train_outer(plan, world, CPU, None, "", ""))
        (path,) = Path().glob("small_iter_*.caffemodel")
        found = read_model(int(path.stem.rsplit("_", 1)[1]))
        path.unlink()
        return found

    plain = weights()
    scaled("global_grad_scale_adaptive: true")
    for name, values in weights().items():
        np.testing.assert_array_equal(values, plain[name], err_msg=name)


def test_a_python_loss_that_takes_no_heed_of_its_diff_is_scaled_all_the_same(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "half_square.py").write_text(
        "import caffe\n"
        "class HalfSquare(caffe.Layer):\n"
        "    def setup(self, bottom, top): pass\n"
        "    def reshape(self, bottom, top): top[0].reshape(1)\n"
        "    def forward(self, bottom, top): top[0].data[...] = (bottom[0].data ** 2).sum() / 2 / bottom[0].num\n"
        "    def backward(self, top, propagate_down, bottom):\n"
        "        bottom[0].diff[...] = bottom[0].data / bottom[0].num\n"
    )
    monkeypatch.syspath_prepend(folder)
    lines = NET.splitlines()
    (place,) = (index for index, line in enumerate(lines) if '"SoftmaxWithLoss"' in line)
    lines[place] = (
        'layer { name: "loss" type: "Python" bottom: "ip" top: "loss" loss_weight: 1\n'
        '  python_param { module: "half_square" layer: "HalfSquare" } include { phase: TRAIN } }\n'
        'layer { name: "silence" type: "Silence" bottom: "label" include { phase: TRAIN } }'
    )
    text = "\n".join(lines)
    Path("net.prototxt").write_text(text)
    plain = trained(1)
    Path("net.prototxt").write_text(f"{text}\nglobal_grad_scale: 256")
    assert trained(1) == plain


def test_a_scale_that_is_none_is_refused() -> None:
    scaled("global_grad_scale: 0")
    with pytest.raises(PrototxtError, match=r"net.prototxt:\d+:\d+: global_grad_scale is 0; it must be"):
        Solver(read_plan("solver.prototxt"))


def test_snapshots_without_a_scale_say_nothing_of_it() -> None:
    trained(1)
    assert not read_state(9).HasField("loss_scale")
    assert not pb.SolverState.FromString(Path("small_iter_9.solverstate").read_bytes()).HasField("finite_iterations")


@pytest.mark.gpu
@pytest.mark.parametrize("precision", ["FLOAT16", "BFLOAT16"])
def test_half_precision_on_a_gpu_follows_float32(precision: str) -> None:
    def losses(*overrides: str) -> list[float]:
        with Solver(
            read_plan("solver.prototxt", (*overrides, "test_interval: 100")), TrainOptions(torch.device("cuda", 0))
        ) as s:
            found = []
            for _ in range(6):
                s.step(1)
                found.append(s.loss)
            return found

    np.testing.assert_allclose(losses(f"precision: {precision}"), losses(), rtol=0.02)


@pytest.mark.gpu
def test_an_overflow_on_a_gpu_leaves_an_update_out() -> None:
    """A scale of 2**26 is infinite in float16; it is halved until it fits."""
    scaled("global_grad_scale_adaptive: true", f"global_grad_scale: {2**26}")
    with Solver(read_plan("solver.prototxt", ("precision: FLOAT16", "max_iter: 40")), TrainOptions(CUDA)) as solver:
        solver.step(40)
        assert 1 <= solver.runtime.updater.scale.value < 2**26
        assert all(value.isfinite().all() for value in solver.net.values_by_name().values())
