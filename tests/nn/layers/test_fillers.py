"""Every filler against what Caffe's drew, and every way to misuse one."""

from __future__ import annotations

import json
import math
import re
from typing import Any

import pytest
import torch
from google.protobuf import text_format
from torch import Tensor

from bpt.base.errors import UserError
from bpt.base.seeds import derive_seed
from bpt.config.proto import bpt_pb2 as pb
from bpt.graph.part import BlobSlice, slice_bounds
from bpt.nn.layers import fillers
from bpt.nn.layers.fillers import FILLERS, fill
from tests.support.paths import GOLDEN

CASES = json.loads((GOLDEN / "fillers" / "fillers.json").read_text())
RANDOM = [
    pytest.param(case, id=f"{case['layer']}-{case['filler']}")
    for case in CASES
    if "exact" not in case and "constant" not in case["filler"]
]
# A difference of two independent estimates is within 5 standard errors in all but one of 1.7 million trials.
SIGMAS = 5 * math.sqrt(2)


def filled(text: str, *shape: int, seed: int = 0) -> Tensor:
    """A blob of ``shape`` as the filler of ``text`` leaves it."""
    tensor = torch.full(shape, math.nan)
    fill(tensor, text_format.Parse(text, pb.FillerParameter()), torch.Generator().manual_seed(seed))
    return tensor


def filled_slice(text: str, shape: tuple[int, ...], part: BlobSlice, seed: int = 0) -> Tensor:
    """A slice of the blob that ``filled`` gives."""
    tensor = torch.full(part.shape(shape), math.nan)
    parameter = text_format.Parse(text, pb.FillerParameter())
    fill(tensor, parameter, torch.Generator().manual_seed(seed), shape, part)
    return tensor


def moments(values: Tensor) -> tuple[float, float]:
    wide = values.double()
    return float(wide.mean()), float(wide.std(correction=0))


@pytest.mark.parametrize("case", RANDOM)
def test_moments_are_caffes(case: dict[str, Any]) -> None:
    values = filled(case["filler"], *case["weight_shape"])
    number = values.numel()
    mean, std = moments(values)
    zeros = float((values == 0).double().mean())
    kept = 1 - case["frac_zero"]
    # The standard error of a deviation is σ sqrt((κ - 1) / 4n); zeros put in among a normal's values make
    # its kurtosis κ = 3 that of 3 / kept. A uniform's is smaller, and the bound only wider.
    error = case["std"] / math.sqrt(number)
    assert abs(mean - case["mean"]) <= SIGMAS * error
    assert abs(std - case["std"]) <= SIGMAS * error * math.sqrt(3 / kept - 1) / 2
    assert abs(zeros - case["frac_zero"]) <= SIGMAS * math.sqrt(kept * (1 - kept) / number)


@pytest.mark.parametrize("case", [param for param in RANDOM if re.search("uniform|xavier", str(param.id))])
def test_bounds_are_caffes(case: dict[str, Any]) -> None:
    values = filled(case["filler"], *case["weight_shape"])
    # P(an extreme of n uniform values is further than 20 / n of the range from the bound) = exp(-20).
    slack = 20 / values.numel() * (case["max"] - case["min"])
    assert float(values.max()) == pytest.approx(case["max"], abs=slack)
    assert float(values.min()) == pytest.approx(case["min"], abs=slack)


@pytest.mark.parametrize("case", [case for case in CASES if "exact" in case], ids=lambda case: len(case["exact"]))
def test_bilinear_is_caffes(case: dict[str, Any]) -> None:
    kernel = torch.tensor(case["exact"])
    values = filled(case["filler"], 3, 2, *kernel.shape)
    assert torch.equal(values, kernel.expand(3, 2, -1, -1))


def test_constant() -> None:
    assert torch.equal(filled("value: 0.7", 2, 3), torch.full((2, 3), 0.7))
    assert torch.equal(filled('type: "constant"', 4), torch.zeros(4))
    assert torch.equal(filled("value: -1"), torch.tensor(-1.0))


@pytest.mark.parametrize("shape", [(5,), (4, 7), (3, 2, 5, 5)])
def test_rows_of_a_unitball_sum_to_1(shape: tuple[int, ...]) -> None:
    rows = filled('type: "positive_unitball"', *shape).reshape(shape[0], -1)
    assert bool((rows >= 0).all())
    torch.testing.assert_close(rows.sum(1), torch.ones(shape[0]))


@pytest.mark.parametrize(
    ("norm", "variance"),
    # Bias of 10,000 outputs: fan_in = count / shape[0] = 1; without an axis 1 fan_out = count.
    # Uniform in ± sqrt(3 / n) has variance 1 / n.
    [("FAN_IN", 1.0), ("FAN_OUT", 1e-4), ("AVERAGE", 1 / 5000.5)],
)
def test_fans_of_one_axis(norm: str, variance: float) -> None:
    _, std = moments(filled(f'type: "xavier" variance_norm: {norm}', 10_000))
    assert std == pytest.approx(math.sqrt(variance), rel=0.03)
    _, std = moments(filled(f'type: "msra" variance_norm: {norm}', 10_000))
    assert std == pytest.approx(math.sqrt(2 * variance), rel=0.05)


def test_sparse_extremes() -> None:
    assert torch.equal(filled('type: "gaussian" sparse: 0', 3, 4), torch.zeros(3, 4))
    assert bool((filled('type: "gaussian" sparse: 3', 3, 4) != 0).all())
    assert bool((filled('type: "gaussian" sparse: 3', 3) != 0).all())


@pytest.mark.parametrize("name", list(FILLERS))
def test_settings_of_other_fillers_are_ignored(name: str) -> None:
    # 'type: "xavier" std: 0.1' stands in many a published net.
    settings = {"constant": "value: 2", "uniform": "min: 1 max: 2", "gaussian": "mean: 1 std: 2"}
    others = " ".join(text for other, text in settings.items() if other != name)
    shape = (2, 3, 4, 4)
    assert torch.equal(filled(f'type: "{name}" {others}', *shape), filled(f'type: "{name}"', *shape))


@pytest.mark.parametrize("name", list(FILLERS))
def test_nothing_to_fill(name: str) -> None:
    assert filled(f'type: "{name}"', 0, 3).shape == (0, 3)


DRAWN = ["uniform", "gaussian", "xavier", "msra", "positive_unitball"]


@pytest.mark.parametrize("text", [*(f'type: "{name}"' for name in DRAWN), 'type: "gaussian" sparse: 1'])
@pytest.mark.parametrize("shape", [(2, 3), (2, 200_000)], ids=["small", "large"])
def test_values_depend_on_the_generator_alone(text: str, shape: tuple[int, ...]) -> None:
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        one = filled(text, *shape, seed=3)
        torch.set_num_threads(4)
        torch.manual_seed(5)
        four = filled(text, *shape, seed=3)
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(one, four)
    assert not torch.equal(one, filled(text, *shape, seed=4))


SETTINGS = [*(f'type: "{name}"' for name in FILLERS if name != "bilinear"), 'type: "gaussian" sparse: 2']


@pytest.mark.parametrize("parts", [1, 2, 3, 5])
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("text", SETTINGS)
def test_slices_have_the_values_of_the_whole(text: str, axis: int, parts: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fillers, "BLOCK", 50)  # blocks of 5 rows: slices start and end inside of them
    shape = (23, 9)
    slices = [
        filled_slice(text, shape, BlobSlice(axis, start, stop)) for start, stop in slice_bounds(shape[axis], parts)
    ]
    assert torch.equal(torch.cat(slices, axis), filled(text, *shape))


@pytest.mark.parametrize("axis", [0, 1, 2, 3])
@pytest.mark.parametrize("text", [*SETTINGS, 'type: "bilinear"'])
def test_slices_of_four_axes(text: str, axis: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fillers, "BLOCK", 300)
    shape = (7, 3, 5, 5)
    size = shape[axis]
    slices = [
        filled_slice(text, shape, BlobSlice(axis, *bounds)) for bounds in ((0, 1), (1, size - 1), (size - 1, size))
    ]
    assert torch.equal(torch.cat(slices, axis), filled(text, *shape))


def test_slices_of_a_large_blob_and_of_one_axis() -> None:
    for shape in ((1000, 300), (150_000,)):
        whole = filled('type: "msra"', *shape)
        cuts = ((0, 77), (77, shape[0] - 5), (shape[0] - 5, shape[0]))
        assert torch.equal(torch.cat([filled_slice('type: "msra"', shape, BlobSlice(0, *cut)) for cut in cuts]), whole)


def test_each_block_has_a_generator_of_its_own() -> None:
    # 300 columns: blocks of 65,536 // 300 = 218 rows.
    expected = torch.empty(500, 300)
    for block, start in enumerate((0, 218, 436)):
        seed = derive_seed(7, "block", block) if block else 7
        expected[start : start + 218].uniform_(generator=torch.Generator().manual_seed(seed))
    assert torch.equal(filled('type: "uniform"', 500, 300, seed=7), expected)


def test_what_was_drawn_before_does_not_matter() -> None:
    generator = torch.Generator().manual_seed(3)
    first, second = torch.empty(9), torch.empty(9)
    for tensor in (first, second):
        fill(tensor, pb.FillerParameter(type="uniform"), generator)
    assert torch.equal(first, second)


def test_memory_in_another_order_gets_the_same_values() -> None:
    tensor = torch.empty(4, 3, 5, 5).contiguous(memory_format=torch.channels_last)
    fill(tensor, pb.FillerParameter(type="gaussian"), torch.Generator().manual_seed(0))
    assert torch.equal(tensor, filled('type: "gaussian"', 4, 3, 5, 5))


def test_an_empty_slice_is_checked_like_the_others() -> None:
    assert filled_slice('type: "xavier"', (3, 4), BlobSlice(0, 3, 3)).shape == (0, 4)
    with pytest.raises(UserError, match="sparse 4 is outside"):
        filled_slice('type: "gaussian" sparse: 4', (3, 4), BlobSlice(0, 3, 3))


def test_a_parameter_can_be_filled() -> None:
    parameter = torch.nn.Parameter(torch.empty(3))
    fill(parameter, pb.FillerParameter(value=2), torch.Generator())
    assert torch.equal(parameter.detach(), torch.full((3,), 2.0))
    assert parameter.grad_fn is None


@pytest.mark.parametrize(
    ("text", "shape", "message"),
    [
        ('type: "gausian"', (2,), 'unknown filler type "gausian"; did you mean "gaussian"?'),
        (
            'type: "zzz"',
            (2,),
            'unknown filler type "zzz" (known: bilinear, constant, gaussian, msra, positive_unitball, uniform, xavier)',
        ),
        ('type: "uniform" min: 2', (2,), "uniform filler: min 2 is larger than max 1"),
        ('type: "gaussian" std: 0', (2,), "gaussian filler: std must be above 0, not 0"),
        (
            'type: "gaussian" sparse: 3',
            (2, 5),
            "gaussian filler: sparse 3 is outside [0, 2], axis 0 of a blob of shape (2, 5)",
        ),
        (
            'type: "gaussian" sparse: -2',
            (2, 5),
            "gaussian filler: sparse -2 is outside [0, 2], axis 0 of a blob of shape (2, 5)",
        ),
        ('type: "gaussian" sparse: 1', (), "gaussian filler: needs a blob with at least one axis, not a scalar"),
        ('type: "xavier"', (), "xavier filler: needs a blob with at least one axis, not a scalar"),
        ('type: "msra"', (), "msra filler: needs a blob with at least one axis, not a scalar"),
        (
            'type: "positive_unitball"',
            (),
            "positive_unitball filler: needs a blob with at least one axis, not a scalar",
        ),
        ('type: "xavier" sparse: 1', (2, 5), "xavier filler: sparse goes with the gaussian filler only"),
        (
            'type: "bilinear"',
            (2, 3, 4),
            "bilinear filler: needs a blob with 4 axes and a square kernel, not shape (2, 3, 4)",
        ),
        (
            'type: "bilinear"',
            (2, 3, 4, 5),
            "bilinear filler: needs a blob with 4 axes and a square kernel, not shape (2, 3, 4, 5)",
        ),
    ],
)
def test_errors(text: str, shape: tuple[int, ...], message: str) -> None:
    with pytest.raises(UserError) as caught:
        filled(text, *shape)
    assert str(caught.value) == message
