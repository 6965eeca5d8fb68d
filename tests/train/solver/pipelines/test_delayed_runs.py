"""``schedule: DELAYED`` against Eq. 1 and 2 of the Hybrid paper, written by hand for three layers."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from bpt.base.signals import SignalAction
from bpt.config.plan.resolve import read_plan
from bpt.system.comm.base import Communicator
from bpt.train.runtime.runtime import Runtime
from bpt.train.solver.solver import Solver
from tests.support.doubles.thread_ranks import ThreadCommunicator, run_ranks
from tests.support.hdf5_files import write
from tests.support.signalled_runs import on
from tests.support.spread_runs import Line, read_model, read_state, train

BATCH, ROWS, INPUTS = 4, 10, 3
FC = """
layer {{ name: "{0}" type: "InnerProduct" bottom: "{1}" top: "{0}" parallel_param {{ stage: {2} }}
  inner_product_param {{ num_output: {3} weight_filler {{ type: "xavier" }} bias_filler {{ type: "uniform" }} }} }}
"""
NET = f"""
name: "small"
layer {{ name: "data" type: "HDF5Data" top: "x" top: "y" hdf5_data_param {{ source: "list.txt" batch_size: {BATCH} }} }}
{FC.format("a", "x", 0, 5)}
layer {{ name: "ta" type: "TanH" bottom: "a" top: "a" }}
{FC.format("b", "a", 1, 4)}
layer {{ name: "tb" type: "TanH" bottom: "b" top: "b" }}
{FC.format("c", "b", 2, 2)}
layer {{ name: "loss" type: "EuclideanLoss" bottom: "c" bottom: "y" top: "loss" }}
"""
SOLVER = """
net: "net.prototxt" base_lr: 0.1 momentum: 0.9 weight_decay: 0.01 lr_policy: "step" gamma: 0.5 stepsize: 3
max_iter: 8 display: 1 average_loss: 1 snapshot: 1 snapshot_prefix: "small" random_seed: 3 engine: CONTIGUOUS
"""
DELAYED = "parallel_param { num_stages: 3 pipeline_param { schedule: DELAYED allocator: MANUAL } }"
Array = NDArray[np.float64]
Weights = dict[str, Array]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.prototxt").write_text(NET)
    (tmp_path / "solver.prototxt").write_text(SOLVER)
    write(tmp_path, dict(zip(("x", "y"), rows(), strict=True)))
    (tmp_path / "list.txt").write_text(f"{tmp_path}/0.h5\n")
    return tmp_path


def rows() -> tuple[Array, Array]:
    generator = np.random.default_rng(5)
    return generator.standard_normal((ROWS, INPUTS)), generator.standard_normal((ROWS, 2))


def loss_and_gradient(weights: Weights, batch: int) -> tuple[float, Weights]:
    """Of half the mean squared distance, worked by hand. If "c" is wide enough, it reads "b" and "a"."""
    which = np.arange(batch * BATCH, (batch + 1) * BATCH) % ROWS
    x, y = (array[which] for array in rows())
    a = np.tanh(x @ weights["a/0"].T + weights["a/1"])
    b = np.tanh(a @ weights["b/0"].T + weights["b/1"])
    top = np.concatenate((b, a), 1)[:, : weights["c/0"].shape[1]]
    off = top @ weights["c/0"].T + weights["c/1"] - y
    dc = off / BATCH
    d_top = dc @ weights["c/0"]
    db = d_top[:, :4] * (1 - b * b)
    da = (db @ weights["b/0"] + (d_top[:, 4:] if d_top.shape[1] > 4 else 0)) * (1 - a * a)
    gradient = {
        "c/0": dc.T @ top, "c/1": dc.sum(0), "b/0": db.T @ a, "b/1": db.sum(0), "a/0": da.T @ x, "a/1": da.sum(0),
    }  # fmt: skip
    return float((off * off).sum() / 2 / BATCH), gradient


def reference(
    weights: Weights,
    iterations: int,
    delays: dict[str, int],
    first: int = 0,
    velocity: Weights | None = None,
    looks_ahead: bool = False,
) -> tuple[list[Weights], list[float]]:
    """Weights after each iteration, and each batch's loss.

    Eq. 1: all that a batch's backward pass uses is of that batch's forward pass. Eq. 2: a layer applies in iteration t
    the gradient of batch t - delay, if there is one.

    Args:
        delays: of each layer.
        first: the iteration at which the run begins, with this ``velocity``.
        looks_ahead: with τ iterations of delay, gradients count 1 / (τ + 1), momentum lasts as much longer, and the
            weights are where it carries those that updates lead to, in τ + 1 iterations.
    """
    velocity = dict(velocity or {name: np.zeros_like(value) for name, value in weights.items()})
    gradients: dict[int, Weights] = {}
    trail, losses = [], []
    for now in range(first, iterations):
        loss, gradients[now] = loss_and_gradient(weights, now)
        losses.append(loss)
        updated = dict(weights)
        for name, value in weights.items():
            batch = now - delays[name[0]]
            if batch >= first:
                rate = 0.1 * 0.5 ** (batch // 3)
                before, ahead = velocity[name], 1 + delays[name[0]] * looks_ahead
                momentum, rate = 1 - 0.1 / ahead, rate / ahead
                velocity[name] = momentum * before + rate * (gradients[batch][name] + 0.01 * value)
                updated[name] = value - velocity[name]
                if looks_ahead:
                    further = sum(momentum**power for power in range(1, ahead + 1))
                    updated[name] = value - velocity[name] - further * (velocity[name] - before)
        weights = updated
        trail.append(weights)
    return trail, losses


def start() -> Weights:
    """What the fillers make; a run of one process shows it."""
    with Solver(read_plan("solver.prototxt", ["snapshot: 0"])) as solver:
        values = solver.net.values_by_name()
        return {f"{name}/{blob}": value.detach().numpy().astype(np.float64) for (name, blob), value in values.items()}


def shaped(flat: dict[str, NDArray[np.float32]]) -> Weights:
    rows_of = {"a/0": 5, "b/0": 4, "c/0": 2}
    return {
        name: value.astype(np.float64).reshape((rows_of[name], -1) if name in rows_of else -1)
        for name, value in flat.items()
    }


def check(expected: list[Weights], first: int = 0) -> None:
    for number, weights in enumerate(expected, first + 1):
        found = shaped(read_model(number))
        for name, value in weights.items():
            np.testing.assert_allclose(found[name], value, rtol=0, atol=1e-5, err_msg=f"{name} after {number}")


def losses_of(lines: list[Line]) -> list[float]:
    return [line.numbers[0] for line in lines if line.words.endswith("loss = N")]


THREE = {"a": 2, "b": 1, "c": 0}


def test_delays_count_along_the_path() -> None:
    """Two stages, of which the first has the first and the last layer: what is between them takes an iteration."""
    Path("net.prototxt").write_text(NET.replace("{ stage: 2 }", "{ stage: 0 }"))
    expected, losses = reference(start(), 8, THREE)
    run = train(2, DELAYED.replace("num_stages: 3", "num_stages: 2"))
    check(expected)
    np.testing.assert_allclose(losses_of(run.lines)[:8], [losses[0], *losses[:7]], rtol=1e-4)


def test_three_stages_are_the_equations() -> None:
    expected, losses = reference(start(), 8, THREE)
    run = train(3, DELAYED)
    check(expected)
    # A loss is shown two iterations late, the first one meanwhile; the last line is of a pass with the last weights.
    shown = losses_of(run.lines)
    np.testing.assert_allclose(shown[:8], [losses[0], losses[0], *losses[:6]], rtol=1e-4)
    np.testing.assert_allclose(shown[8], loss_and_gradient(expected[-1], 8)[0], rtol=1e-4)


def test_weights_look_ahead_by_the_delays() -> None:
    expected, _ = reference(start(), 8, THREE, looks_ahead=True)
    train(3, DELAYED, "parallel_param { pipeline_param { correction: NESTEROV } }")
    check(expected)


def test_all_that_is_shown_of_an_iteration_is_of_one_batch() -> None:
    """Outputs are as late as the loss; also where some are made by an earlier stage, and after the run went back."""
    net = Path("net.prototxt")
    more = 'layer { name: "more" type: "Reduction" bottom: "b" top: "more" reduction_param { operation: ASUM } '
    net.write_text(net.read_text().replace('layer { name: "c"', f'{more} loss_weight: 0.5 }} layer {{ name: "c"'))
    run = train(3, DELAYED)
    shown = shown_by(run.lines)
    assert [number for number, *_ in shown] == list(range(8))
    for _, loss, outputs in shown:
        np.testing.assert_allclose(loss, outputs["loss"] + 0.5 * outputs["more"], rtol=1e-4)
    assert shown[0][1:] == shown[1][1:] == shown[2][1:] != shown[3][1:]
    assert "Losses and outputs are shown 2 iterations late: no stage waits for them" in run.log

    def go_back(comm: Communicator) -> None:
        with Solver(read_plan("solver.prototxt", [DELAYED]), world=comm) as solver:
            solver.step(5)
            solver.restore("small_iter_2.solverstate")
            solver.step(1)
            of_rank[comm.rank] = {name: value.sum().item() for name, value in outputs_of(solver).items()}, solver.loss

    of_rank: dict[int, tuple[dict[str, float], float]] = {}
    run_ranks(3, go_back)
    outputs, loss = of_rank[0]
    assert outputs["loss"] + 0.5 * outputs["more"] == pytest.approx(loss, rel=1e-4)


def outputs_of(solver: Solver) -> dict[str, Tensor]:
    return solver.runtime.nets.train.outputs.whole(solver.runtime.nets.train.operator.values)


def shown_by(lines: list[Line]) -> list[tuple[int, float, dict[str, float]]]:
    """The number, the loss and the outputs of each iteration that is shown with outputs."""
    shown: list[tuple[int, float, dict[str, float]]] = []
    for line in lines:
        if found := re.match(r"Iteration (\d+)( \(.*\))?, loss", line.words):
            shown.append((int(found[1]), line.numbers[0], {}))
        elif found := re.search(r"Train net output #\d+: (\w+) = N", line.words):
            shown[-1][2][found[1]] = line.numbers[0]
    return [one for one in shown if one[2]]


def test_nothing_is_updated_before_a_gradient_comes_back() -> None:
    """Neither by weight decay nor by momentum."""
    begin = start()
    train(3, DELAYED)
    first, second = shaped(read_model(1)), shaped(read_model(2))
    for name in ("a/0", "a/1"):
        np.testing.assert_array_equal(first[name], begin[name])
        np.testing.assert_array_equal(second[name], begin[name])
    np.testing.assert_array_equal(first["b/0"], begin["b/0"])
    assert (second["b/0"] != begin["b/0"]).any()
    assert (first["c/0"] != begin["c/0"]).any()


def test_two_layers_on_a_stage() -> None:
    net = Path("net.prototxt")
    net.write_text(net.read_text().replace("stage: 1", "stage: 0").replace("stage: 2", "stage: 1"))
    expected, _ = reference(start(), 8, {"a": 1, "b": 1, "c": 0})
    train(2, DELAYED, "parallel_param { num_stages: 2 }")
    check(expected)


@pytest.mark.parametrize("exchange", ["ALLREDUCE", "RING", "CGDP cgdp_param { chunk_size: 1 }"])
def test_replicas_of_the_pipeline(exchange: str) -> None:
    expected, _ = reference(start(), 8, THREE)
    train(6, DELAYED, f"parallel_param {{ exchange: {exchange} }}")
    check(expected)


def test_one_stage_is_plain_gradient_descent() -> None:
    expected, _ = reference(start(), 8, {"a": 0, "b": 0, "c": 0})
    run = train(1, "parallel_param { pipeline_param { schedule: DELAYED } }")
    check(expected)
    assert any("pipeline_param has no effect without num_stages above 1" in line for line in run.log)


def test_a_resumed_run_begins_anew() -> None:
    """What was under way is lost: the gradients of the first batches come back late once more."""
    train(3, DELAYED)
    middle, state = shaped(read_model(4)), read_state(4)
    histories = zip(middle.items(), state.history, strict=True)
    velocity = {name: np.reshape(blob.data, value.shape) for (name, value), blob in histories}
    for path in Path().glob("small_iter_[5-8].*"):
        path.unlink()
    train(3, DELAYED, resume="small_iter_4.solverstate")
    check(reference(middle, 8, THREE, 4, velocity)[0], 4)


@pytest.mark.parametrize("skip", [False, True])
def test_a_solver_that_goes_back_to_a_snapshot(skip: bool) -> None:
    """Diffs that were on their way belong to no batch any more."""
    if skip:
        add_skip()

    def run(comm: Communicator) -> None:
        with Solver(read_plan("solver.prototxt", [DELAYED]), world=comm) as solver:
            solver.step(5)
            solver.restore("small_iter_2.solverstate")
            solver.step(4)

    run_ranks(3, run)
    found = {number: read_model(number) for number in (3, 4, 5, 6)}
    train(3, DELAYED, "max_iter: 6", resume="small_iter_2.solverstate")
    for number, weights in found.items():
        for name, value in read_model(number).items():
            np.testing.assert_array_equal(weights[name], value, err_msg=f"{name} after {number}")


def test_a_pause_changes_nothing() -> None:
    """A run in several steps is one run: what is on its way comes back."""

    def run(comm: Communicator) -> None:
        with Solver(read_plan("solver.prototxt", [DELAYED]), world=comm) as solver:
            for _ in range(4):
                solver.step(2)

    expected, _ = reference(start(), 8, THREE)
    run_ranks(3, run)
    check(expected)


@pytest.mark.parametrize("skip", [False, True])
def test_a_test_between_changes_nothing(skip: bool) -> None:
    """Also where diffs are under way for several iterations, over a stage."""
    if skip:
        add_skip()
    expected, _ = reference(start(), 8, THREE)
    train(3, DELAYED, "test_interval: 1 test_iter: 2")
    check(expected)


def add_skip() -> None:
    """Let layer "c" read layer "a", too, from which it is two stages away."""
    net = Path("net.prototxt")
    both = 'layer { name: "both" type: "Concat" bottom: "b" bottom: "a" top: "both" parallel_param { stage: 2 } }'
    before, after = net.read_text().split('layer { name: "c"', 1)
    net.write_text(before + both + ' layer { name: "c"' + after.replace('bottom: "b"', 'bottom: "both"', 1))


def test_a_skip_over_a_stage() -> None:
    add_skip()
    expected, _ = reference(start(), 8, THREE)
    train(3, DELAYED)
    check(expected)


def test_a_library_that_allows_calls_from_one_thread_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ThreadCommunicator, "concurrent", False)
    expected, _ = reference(start(), 8, THREE)
    left: list[int] = []

    def look(solver: Solver) -> None:
        links = solver.runtime.parallel._links
        assert links
        solver.runtime.updater.before_update.append(lambda loss: left.append(len(links._leaving)))

    train(3, DELAYED, each=look)
    check(expected)
    assert max(left) <= 6  # messages of a few iterations; what has left is forgotten


@pytest.mark.parametrize("rank", [0, 2])
def test_a_snapshot_is_written_once(rank: int) -> None:
    """Whatever iteration it is asked in: here the first, of which ranks hear several times."""
    written: list[int] = []

    def note(solver: Solver) -> None:
        write = solver.snapshot

        def snapshot() -> str:
            written.append(solver.iter)
            return write()

        solver.snapshot = snapshot  # type: ignore[method-assign,assignment]

    train(3, DELAYED, "snapshot: 0", signals=on(rank, 0, SignalAction.SNAPSHOT), each=note)
    assert sorted(written) == [1] * 3 + [8] * 3


@pytest.mark.parametrize("rank", [0, 2])
def test_a_stop_on_one_rank(rank: int) -> None:
    run = train(3, DELAYED, "snapshot: 0", signals=on(rank, 0, SignalAction.STOP))
    assert run.iterations == [1] * 3
    assert run.log[-1] == "Optimization stopped early."


def test_a_look_leaves_batches_under_way_alone() -> None:
    """It was taken for batch 0, and let go of all others. It reads a batch, and is of the iteration that is over."""
    seen: set[int] = set()

    def weights(between: Callable[[Runtime], object]) -> list[list[Tensor]]:
        def run(comm: Communicator) -> list[Tensor]:
            with Solver(read_plan("solver.prototxt", [DELAYED]), world=comm) as solver:
                solver.step(1)
                between(solver.runtime)
                solver.step(4)
                return [value.detach() for value in solver.runtime.net.parameters()]

        return run_ranks(3, run)

    def look(runtime: Runtime) -> None:
        net = runtime.net
        hooks = [layer.register_forward_hook(lambda *_: seen.add(net.context.iteration)) for layer in net.layers]
        runtime.forward_only()
        for hook in hooks:
            hook.remove()

    def skip(runtime: Runtime) -> None:
        for layer in runtime.net.data_layers().values():
            layer.position += BATCH

    for ours, theirs in zip(weights(look), weights(skip), strict=True):
        assert all(map(torch.equal, ours, theirs))
    assert seen == {0}
