"""batch { rule: NOISE_SCALE } on ranks that are threads: passes follow the noise, alike on all ranks, and go on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from bpt.base.errors import PrototxtError
from bpt.train.solver.solver import Solver
from tests.support.spread_runs import Run, assert_same_lines, read_model, remove_snapshots, train

pytestmark = pytest.mark.usefixtures("folder")

NOISE = (
    "max_iter: 24 display: 2 test_interval: 100 iter_size: 1 clip_gradients: -1 snapshot: 13 "
    "parallel_param { balance_param { batch { rule: NOISE_SCALE max: 24 } } }"
)
CGDP = "parallel_param { exchange: CGDP cgdp_param { chunk_size: 1 } }"


def noting(seen: dict[int, list[int]]) -> Callable[[Solver], None]:
    """Note the passes of each iteration of each rank."""

    def each(solver: Solver) -> None:
        passes = seen.setdefault(solver.runtime.world.rank, [])
        solver.runtime.updater.on_loss.append(lambda loss: passes.append(solver.runtime.passes.count))

    return each


@pytest.mark.parametrize(("ranks", "overrides"), [(2, CGDP), (4, "")])  # of 4 ranks two have 2 samples, and two have 1
def test_passes_follow_the_noise_and_go_on(ranks: int, overrides: str) -> None:
    """6 samples a pass, of so small a net that gradients are noise for the most part: 1, then 2 and 4 passes."""
    whole: dict[int, list[int]] = {}
    run = train(ranks, NOISE, overrides, each=noting(whole))
    assert [*whole.values()] == [[1] * 10 + [2] * 10 + [4] * 4] * ranks
    assert [line for line in run.log if line.startswith("Batch: from iteration 10 on, 12 samples in 2 passes")]
    weights = read_model(24)
    rest: dict[int, list[int]] = {}
    went_on: Run = train(ranks, NOISE, overrides, resume="small_iter_13.solverstate", each=noting(rest))
    assert [*rest.values()] == [whole[0][13:]] * ranks
    assert_same_lines(went_on.since(14), run.since(14))
    for name, values in read_model(24).items():
        np.testing.assert_allclose(values, weights[name], rtol=0, atol=1e-5 * np.abs(values).max(), err_msg=name)
    remove_snapshots()


def noise_of(scale: str) -> list[tuple[float, ...]]:
    """Return the estimates of rank 0 in the iterations of a run with a loss scale."""
    states: list[tuple[float, ...]] = []

    def each(solver: Solver) -> None:
        noise = solver.runtime.run_state.noise
        assert noise is not None
        if solver.runtime.world.rank == 0:
            solver.runtime.updater.on_loss.append(lambda loss: states.append(noise.state()))

    text = Path("net.prototxt").read_text()
    Path("net.prototxt").write_text(f"global_grad_scale: {scale}\n{text}")
    train(2, NOISE, "max_iter: 12", each=each)
    Path("net.prototxt").write_text(text)
    remove_snapshots()
    return states


def test_gradients_are_measured_without_the_loss_scale() -> None:
    """Norms of gradients times 1e38 are not finite in float32."""
    np.testing.assert_allclose(noise_of("8"), noise_of("1"), rtol=1e-6)
    assert noise_of("1e38 global_grad_scale_adaptive: true")[-1] == (1.0, 0.0, 0.0, 0.0)


def test_passes_are_those_of_iter_size() -> None:
    """12 samples are 2 passes, whatever the noise is."""
    expected = train(1, NOISE.replace("iter_size: 1", "iter_size: 2").replace("NOISE_SCALE", "FIXED"))
    remove_snapshots()
    run = train(2, NOISE.replace("max: 24", "min: 12 max: 12"))
    assert_same_lines(run.lines, expected.lines)


def test_a_largest_batch_below_one_is_refused_with_one_that_fits() -> None:
    with pytest.raises(PrototxtError, match=r"max: 4 .* use max: 6 or more"):
        train(2, NOISE.replace("max: 24", "max: 4"))
