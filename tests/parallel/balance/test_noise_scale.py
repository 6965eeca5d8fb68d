"""NoiseScale against gradients of a known noise, and by hand; what it combines with."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bpt.parallel.balance.balance_rules import violations
from bpt.parallel.balance.noise_scale import INTERVAL, NoiseScale
from tests.support.small_solver import small_solver


def test_by_hand() -> None:
    """Two ranks of 6 and 2 samples: S = 6 * 2 + 2 * 6 - 8 * 2 = 8, and |G|^2 = 2 - 8 / 8 = 1."""
    scale = NoiseScale(8, 1, 100)
    scale.add([6, 0, 2], [2, 0, 6], 2)
    assert scale.samples == pytest.approx(8)


@pytest.mark.parametrize(("norms", "norm"), [([2, float("inf")], 2.0), ([2, 6], float("nan"))])
def test_gradients_that_have_overflown_are_left_out(norms: list[float], norm: float) -> None:
    scale = NoiseScale(8, 1, 100)
    for _ in range(INTERVAL):
        scale.add([6, 2], norms, norm)
        scale.add([6, 2], [2, 6], 2)
    assert scale.samples == pytest.approx(8)
    assert scale.state()[-1] == INTERVAL


@pytest.mark.parametrize("counts", [(16, 16), (26, 4, 2), (12, 12, 4, 4)])
def test_gradients_of_a_known_noise(counts: tuple[int, ...]) -> None:
    """Samples have gradients of mean 0.1 and deviation 1 in 400 numbers: S / |G|^2 = 400 / (400 * 0.01) = 100."""
    draw, scale = np.random.default_rng(1), NoiseScale(32, 1, 1000)
    for _ in range(400):
        own = [draw.normal(0.1, 1, (count, 400)).mean(axis=0) for count in counts]
        whole = np.average(own, axis=0, weights=counts)
        scale.add(counts, [float(each @ each) for each in own], float(whole @ whole))
    assert scale.samples == pytest.approx(100, rel=0.15)
    assert scale.passes == 3


def test_the_passes_grow_step_by_step_to_the_most() -> None:
    scale = NoiseScale(4, 1, 6)
    passes = []
    for _ in range(4 * INTERVAL):
        scale.add([2, 2], [3, 3], 1)  # S = 8 and |G|^2 = -1: nothing but noise
        passes.append(scale.passes)
    assert passes[INTERVAL - 2 :: INTERVAL] == [1, 2, 4, 6]
    assert passes[INTERVAL - 1 :: INTERVAL] == [2, 4, 6, 6]


def test_a_run_that_goes_on() -> None:
    scale, other = NoiseScale(4, 1, 6), NoiseScale(4, 1, 6)
    for _ in range(INTERVAL + 3):
        scale.add([2, 2], [3, 3], 1)
    other.load(scale.state())
    assert (other.passes, other.samples, other.state()) == (scale.passes, scale.samples, scale.state())
    other.load(())
    assert other.state() == NoiseScale(4, 1, 6).state()


@pytest.mark.parametrize(
    ("batch", "parallel", "solver", "fields"),
    [
        ("max: 64", "", "", []),
        ("max: 64", "exchange: CGDP balance: DYNAMIC", "", []),
        ("min: 9 max: 8", "", "", ["max"]),
        ("", "", "", ["max"]),
        ("max: 64", "exchange: TREE", "", ["rule"]),
        ("max: 64", "num_shards: 2", "", ["rule"]),
        ("max: 64", "update: SHARDED", "", ["rule"]),
        ("max: 64", "num_stages: 2", "", ["rule"]),
        ("max: 64", "compression_param { codec: BF16 }", "", ["rule"]),
        ("max: 64", "balance_param { normalizer: UNIFORM }", "", ["rule"]),
        ("max: 64", "balance: DYNAMIC balance_param { by: ITERATION }", "", ["rule"]),
        ("max: 64", "", "iter_size: 2", ["iter_size"]),
    ],
)
def test_what_follows_the_noise(tmp_path: Path, batch: str, parallel: str, solver: str, fields: list[str]) -> None:
    text = f"parallel_param {{ balance_param {{ batch {{ rule: NOISE_SCALE {batch} }} }} }}"
    plan = small_solver(tmp_path, text, f"parallel_param {{ {parallel} }} {solver}")
    assert [violation.field[-1] for violation in violations(plan)] == fields
