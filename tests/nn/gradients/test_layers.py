"""Every layer type at settings and shapes that hypothesis draws: gradients, shapes, and what must not matter.

``make test`` draws a few cases of each type and compares random sums of derivatives; the slow test draws many, and
compares every single derivative.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as some

from bpt.base.errors import LayerError
from bpt.nn.layers import LAYERS
from tests.support.gradients import blobs, forks_losses, losses, neurons, products, recurrent, regions, windows  # noqa: F401  (they enter their cases)
from tests.support.gradients.cases import CASES, Case
from tests.support.gradients.checks import check_case
from tests.support.gradients.without import CASES_WITHOUT, WHY
from tests.support.one_layer import tops_of

SOURCE = "has no bottoms and no parameters"
SINK = "has no tops"
WITHOUT_GRADIENT = {
    **WHY,
    "HDF5Output": SINK,
    "Silence": SINK,
    "AnnotatedData": SOURCE,
    "Data": SOURCE,
    "DenseImageData": SOURCE,
    "DummyData": SOURCE,
    "HDF5Data": SOURCE,
    "ImageData": SOURCE,
    "ImageLabelmapData": SOURCE,
    "ImageSegData": SOURCE,
    "Input": SOURCE,
    "MemoryData": SOURCE,
    "VideoData": SOURCE,
    "VolumeData": SOURCE,
    "WindowData": SOURCE,
}
every_type = pytest.mark.parametrize("kind", sorted(CASES))
drawn = settings(
    deadline=None, derandomize=True, suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow]
)


def check(case: Case, fast: bool) -> None:
    try:
        case.graph()
    except LayerError:  # a kernel larger than the bottom and the like
        assume(False)
    check_case(case, fast)


@every_type
@settings(drawn, max_examples=8)
@given(data=some.data())
def test_few_cases(kind: str, data: some.DataObject) -> None:
    check(data.draw(CASES[kind]), fast=True)


@pytest.mark.slow
@every_type
@settings(drawn, max_examples=100)
@given(data=some.data())
def test_many_cases(kind: str, data: some.DataObject) -> None:
    check(data.draw(CASES[kind]), fast=False)


def test_every_layer_type_is_here() -> None:
    """A new type needs a strategy, or a reason why it has no gradient."""
    assert set(CASES) | set(WITHOUT_GRADIENT) == set(LAYERS)
    assert not set(CASES) & set(WITHOUT_GRADIENT)


@pytest.mark.parametrize("kind", WITHOUT_GRADIENT)
def test_a_type_without_gradient_has_none(kind: str) -> None:
    arity = LAYERS[kind].arity
    if WITHOUT_GRADIENT[kind] == SOURCE:
        assert arity.bottoms[1] == 0
    elif WITHOUT_GRADIENT[kind] == SINK:
        assert arity.tops[1] == 0
    else:
        case = CASES_WITHOUT[kind]
        layer = case.layer()
        assert not len(layer.blobs)
        assert not any(top.requires_grad for top in tops_of(layer, *(b.clone().requires_grad_() for b in case.bottoms)))
