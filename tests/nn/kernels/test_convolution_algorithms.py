"""Each algorithm of a convolution against torch's in float64: tops, diffs and gradients, in both memory formats."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from bpt.nn.kernels import convolution_algorithms as module
from bpt.nn.kernels.algorithm import Algorithm, Algorithms, KernelRole
from bpt.nn.kernels.channels_last import has_channels_last_strides, in_format
from bpt.nn.kernels.convolution_algorithms import ConvolutionSteps, convolution_kernels, convolve
from bpt.nn.kernels.linear import works
from tests.support.one_layer import one_layer, randomise

PLAIN = ConvolutionSteps((1,), (0,), (1,), 1)
STRIDED = ConvolutionSteps((2, 3), (2, 1), (1,), 1)
PADDED = ConvolutionSteps((1,), (2,), (1,), 1)
DILATED = ConvolutionSteps((1,), (1, 2), (2,), 1)
GROUPED = ConvolutionSteps((1,), (1,), (1,), 2)

CASES = {
    "one channel": ((5, 1, 9, 11), (4, 1, 5, 3), PLAIN),
    "three channels, stride and pad": ((3, 3, 12, 13), (5, 3, 4, 5), STRIDED),
    "pad": ((2, 2, 7, 6), (3, 2, 5, 5), PADDED),
    "dilation": ((2, 3, 9, 9), (4, 3, 3, 3), DILATED),
    "groups": ((2, 4, 6, 6), (6, 2, 3, 3), GROUPED),
    "many channels": ((2, 6, 5, 5), (4, 6, 3, 3), PADDED),
    "single places": ((2, 3, 4, 5), (4, 3, 1, 1), PLAIN),
    "one place": ((3, 1, 1, 1), (2, 1, 1, 1), PLAIN),
}
ALL = [(role, algorithm) for role, table in (
    (KernelRole.FORWARD, module.FORWARD), (KernelRole.BY_DATA, module.BY_DATA),
    (KernelRole.BY_WEIGHTS, module.BY_WEIGHTS),
) for algorithm in table]  # fmt: skip


def draw(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


def run(
    x: Tensor, weight: Tensor, bias: Tensor | None, steps: ConvolutionSteps, algorithms: Algorithms, dy: Tensor
) -> list[Tensor]:
    """The top, the diff of the bottom, and the gradients of weights and bias."""
    leaves = [each.clone().requires_grad_() for each in (x, weight, bias) if each is not None]
    leaves[0] = x.detach().requires_grad_()  # a clone of one channel may have other strides
    top = convolve(leaves[0], leaves[1], leaves[2] if bias is not None else None, steps, algorithms)
    return [top.detach(), *torch.autograd.grad(top, leaves, dy)]


def exact(x: Tensor, weight: Tensor, bias: Tensor | None, steps: ConvolutionSteps, dy: Tensor) -> list[Tensor]:
    """The same by torch's own function, in float64."""
    leaves = [each.double().requires_grad_() for each in (x, weight, bias) if each is not None]
    stride, pad, dilation, group = steps
    top = torch.nn.functional.conv2d(
        leaves[0], leaves[1], leaves[2] if bias is not None else None, tuple(stride), tuple(pad), tuple(dilation), group
    )
    return [top.detach(), *torch.autograd.grad(top, leaves, dy.double())]


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("last", [False, True], ids=["contiguous", "channels-last"])
@pytest.mark.parametrize(("role", "algorithm"), ALL, ids=[f"{role.name}-{each.name}" for role, each in ALL])
def test_top_and_gradients(case: str, last: bool, role: KernelRole, algorithm: Algorithm) -> None:
    shape, filters, steps = CASES[case]
    x, weight, bias = in_format(draw(*shape), last), draw(*filters), draw(filters[0])
    dy = in_format(torch.ones_like(convolve(x, weight, bias, steps, {})), last) * draw(1)
    ours = run(x, weight, bias, steps, {role: algorithm}, dy)
    for found, expected in zip(ours, exact(x, weight, bias, steps, dy), strict=True):
        assert found.dtype == torch.float32
        assert found.shape == expected.shape
        assert (found - expected).norm() <= 1e-5 * expected.norm()
    if max(ours[0].shape[2:]) > 1:
        assert has_channels_last_strides(ours[0]) == last
    if max(shape[2:]) > 1:
        assert has_channels_last_strides(ours[1]) == last


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("role", [KernelRole.FORWARD, KernelRole.BY_WEIGHTS])
def test_a_sample_at_a_time(last: bool, role: KernelRole, monkeypatch: pytest.MonkeyPatch) -> None:
    """Patches that fill the buffer: each sample alone gives the same numbers up to rounding."""
    shape, filters, steps = CASES["three channels, stride and pad"]
    x, weight, bias = in_format(draw(*shape), last), draw(*filters), draw(filters[0])
    dy = draw(*convolve(x, weight, bias, steps, {}).shape)
    together = run(x, weight, bias, steps, {role: Algorithm.PATCHES}, dy)
    monkeypatch.setattr(module, "BLOCK", 1)
    for one, other in zip(run(x, weight, bias, steps, {role: Algorithm.PATCHES}, dy), together, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


def test_without_bias_and_without_a_diff_of_the_bottom() -> None:
    shape, filters, steps = CASES["one channel"]
    x, weight = draw(*shape), draw(*filters).requires_grad_()
    algorithms = {KernelRole.FORWARD: Algorithm.PATCHES, KernelRole.BY_WEIGHTS: Algorithm.PATCHES}
    top = convolve(x, weight, None, steps, algorithms)
    dy = draw(*top.shape)
    top.backward(dy)
    expected = exact(x, weight.detach(), None, steps, dy)
    assert weight.grad is not None
    assert (weight.grad - expected[2]).norm() <= 1e-5 * expected[2].norm()


def algorithms_for(case: str, last: bool = False) -> dict[KernelRole, set[Algorithm]]:
    shape, filters, steps = CASES[case]
    kernels = convolution_kernels(in_format(draw(*shape), last), draw(*filters), draw(filters[0]), steps)
    return {role: set(by_algorithm) for role, by_algorithm in kernels.items()}


def test_which_algorithms_are_tried() -> None:
    both = {Algorithm.TORCH, Algorithm.OTHER_FORMAT}
    patches = both | {Algorithm.PATCHES}
    assert algorithms_for("one channel") == {
        KernelRole.FORWARD: patches, KernelRole.BY_DATA: both | {Algorithm.FLIPPED}, KernelRole.BY_WEIGHTS: patches
    }  # fmt: skip
    strided = algorithms_for("three channels, stride and pad", last=True)
    assert strided[KernelRole.BY_DATA] == both
    assert Algorithm.PATCHES_ONEDNN in strided[KernelRole.FORWARD] or not works()
    for case in ("groups", "dilation", "many channels"):
        assert algorithms_for(case)[KernelRole.FORWARD] == both
    assert algorithms_for("groups")[KernelRole.BY_DATA] == both
    assert Algorithm.FLIPPED in algorithms_for("dilation")[KernelRole.BY_DATA]
    assert algorithms_for("single places")[KernelRole.BY_DATA] == both


def test_patches_need_little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    # One sample has 5 · 9 places of 5 · 3 elements.
    monkeypatch.setattr(module, "LARGE", 5 * 9 * 15)
    assert Algorithm.PATCHES in algorithms_for("one channel")[KernelRole.FORWARD]
    monkeypatch.setattr(module, "LARGE", 5 * 9 * 15 - 1)
    assert Algorithm.PATCHES not in algorithms_for("one channel")[KernelRole.FORWARD]


def test_one_that_cannot_run_is_replaced() -> None:
    shape, filters, steps = CASES["groups"]
    x, weight, bias = draw(*shape), draw(*filters), draw(filters[0])
    algorithms = {KernelRole.FORWARD: Algorithm.PATCHES, KernelRole.BY_DATA: Algorithm.FLIPPED}
    dy = torch.ones_like(convolve(x, weight, bias, steps, {}))
    for ours, torchs in zip(
        run(x, weight, bias, steps, algorithms, dy), run(x, weight, bias, steps, {}, dy), strict=True
    ):
        assert torch.equal(ours, torchs)


def test_no_choice_in_other_numbers() -> None:
    x, weight = draw(2, 1, 9, 9), draw(3, 1, 3, 3)
    assert convolution_kernels(x.double(), weight.double(), None, PLAIN) == {}
    assert convolution_kernels(x[:0], weight, None, PLAIN) == {}
    assert convolution_kernels(draw(2, 1, 9, 9, 9), draw(3, 1, 3, 3, 3), None, PLAIN) == {}


@pytest.mark.parametrize("last", [False, True])
def test_a_layer_by_other_algorithms(last: bool) -> None:
    body = 'type: "Convolution" convolution_param { num_output: 4 kernel_size: 3 pad: 1 }'
    layer = randomise(one_layer(body, (2, 3, 8, 8)))
    x = in_format(draw(2, 3, 8, 8), last)
    with torch.no_grad():
        expected = layer(x)
        layer.algorithms = {KernelRole.FORWARD: Algorithm.PATCHES}
        top = layer(x)
        assert set(layer.kernels(x)) == set(KernelRole)
    torch.testing.assert_close(top, expected, rtol=1e-5, atol=1e-5)
    layer.algorithms = {KernelRole.FORWARD: Algorithm.PATCHES}
    assert "Convolve" in type(layer(x).grad_fn).__name__
    double = x.double()
    assert "Convolve" not in str(layer.double()(double).grad_fn)  # float64 runs by torch's


def test_a_convolution_over_another_axis_has_no_choice() -> None:
    layer = one_layer('type: "Convolution" convolution_param { num_output: 4 kernel_size: 3 axis: 2 }', (2, 2, 3, 8, 8))
    assert layer.kernels(draw(2, 2, 3, 8, 8)) == {}


@pytest.mark.parametrize("algorithm", [Algorithm.ONEDNN, Algorithm.BLAS, Algorithm.PATCHES])
def test_an_algorithm_that_a_kernel_does_not_have_is_torchs(algorithm: Algorithm) -> None:
    x, weight, dy = draw(2, 3, 6, 6), draw(4, 3, 3, 3), draw(2, 4, 4, 4)
    strange = {KernelRole.BY_DATA: algorithm}
    if algorithm != Algorithm.PATCHES:
        strange |= {KernelRole.FORWARD: algorithm, KernelRole.BY_WEIGHTS: algorithm}
    for found, expected in zip(
        run(x, weight, None, PLAIN, strange, dy), run(x, weight, None, PLAIN, {}, dy), strict=True
    ):
        assert torch.equal(found, expected)
