"""Convolutions by filters of one element, against the product of matrices that they are."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor

from bpt.nn.kernels import one_element_filters
from bpt.nn.kernels.channels_last import channels_last
from bpt.nn.kernels.one_element_filters import FEW, NARROW, faster_dilation, mkl_is_slow
from tests.support.one_layer import one_layer, randomise

ONE, TWO = (1, 1), [2, 2]
SHAPE = (2, 32, 80, 80)  # with 64 outputs 26 million multiply-adds
OUTPUTS = 64


@pytest.fixture(autouse=True)
def on_one_thread(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """One thread of a processor on which MKL is slow."""
    monkeypatch.setattr(one_element_filters, "mkl_is_slow", lambda: True)
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def draw(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


def chosen(shape: tuple[int, ...] = SHAPE, outputs: int = OUTPUTS, group: int = 1) -> list[int]:
    """The dilation for a channels-last bottom of this shape."""
    x, filters = channels_last(torch.zeros(shape)), torch.zeros(outputs, shape[1] // group, 1, 1)
    return list(faster_dilation(x, filters, ONE, ONE, group))


def test_few_samples() -> None:
    assert chosen() == TWO
    assert chosen((FEW - 1, *SHAPE[1:])) == TWO
    assert chosen((FEW, *SHAPE[1:])) == [*ONE]  # torch uses oneDNN by itself


def test_groups() -> None:
    wide = (2, 4 * NARROW, 80, 80)
    assert chosen(wide, 4 * NARROW, group=2) == TWO  # 26 million multiply-adds
    assert chosen(wide, 4 * NARROW, group=4) == [*ONE]  # 13 million
    assert chosen((8, *wide[1:]), 4 * NARROW, group=4) == TWO
    assert chosen((15, *wide[1:]), 4 * NARROW, group=8) == [*ONE]  # 49 million, but too few channels in a group


def test_small_or_narrow() -> None:
    assert chosen((2, 32, 60, 60)) == [*ONE]  # 15 million multiply-adds
    assert chosen((8, NARROW - 1, 100, 100), 256) == [*ONE]
    assert chosen((8, 256, 100, 100), NARROW - 1) == [*ONE]
    assert chosen((8, 256, 100, 100), NARROW) == TWO


def test_what_onednn_does_already_or_does_worse() -> None:
    x, filters = channels_last(torch.zeros(SHAPE)), torch.zeros(OUTPUTS, SHAPE[1], 1, 1)
    assert faster_dilation(x, filters, (1, 2), ONE, 1) == ONE
    assert faster_dilation(x, filters, ONE, (3, 3), 1) == (3, 3)
    assert faster_dilation(x, torch.zeros(OUTPUTS, SHAPE[1], 1, 3), ONE, ONE, 1) == ONE
    assert faster_dilation(x.contiguous(), filters, ONE, ONE, 1) == ONE
    assert faster_dilation(x.double(), filters.double(), ONE, ONE, 1) == ONE
    assert faster_dilation(x.bfloat16(), filters.bfloat16(), ONE, ONE, 1) == ONE
    torch.set_num_threads(2)
    assert faster_dilation(x, filters, ONE, ONE, 1) == ONE


@pytest.mark.parametrize(
    ("owner", "name", "value"),
    [
        (torch.backends.mkldnn, "enabled", False),
        (torch.compiler, "is_compiling", lambda: True),
        (torch.jit, "is_tracing", lambda: True),
        (one_element_filters, "mkl_is_slow", lambda: False),
    ],
    ids=["without oneDNN", "under a compiler", "in a trace", "other processors"],
)
def test_where_nothing_is_to_be_gained(
    owner: object, name: str, value: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner, name, value)
    assert chosen() == [*ONE]


@pytest.mark.skipif(not hasattr(torch._C, "_select_conv_backend"), reason="this torch does not say")
@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="this torch has no oneDNN")
@pytest.mark.parametrize("axes", [2, 3])
def test_torch_gives_dilated_filters_to_onednn(axes: int) -> None:
    x, filters = torch.zeros(2, 16, *(4,) * axes), torch.zeros(16, 16, *(1,) * axes)
    window = (1,) * axes, (0,) * axes, (2,) * axes, False, (0,) * axes, 1
    assert torch._C._select_conv_backend(x, filters, None, *window).name == "Mkldnn"


@pytest.mark.parametrize(
    ("capability", "vendor", "slow"),
    [("AVX512", "AuthenticAMD", True), ("AVX2", "AuthenticAMD", False), ("AVX512", "GenuineIntel", False)],
)
def test_which_processors(capability: str, vendor: str, slow: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    for library in (torch.backends.mkl, torch.backends.mkldnn):
        monkeypatch.setattr(library, "is_available", lambda: True)
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
    monkeypatch.setattr(Path, "read_text", lambda path: f"processor\t: 0\nvendor_id\t: {vendor}\n")
    assert mkl_is_slow.__wrapped__() == slow


def test_unknown_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(path: Path) -> str:
        raise FileNotFoundError(path)

    monkeypatch.setattr(Path, "read_text", missing)
    assert not mkl_is_slow.__wrapped__()


@pytest.mark.parametrize(
    ("shape", "settings"),
    [(SHAPE, ""), ((2, 64, 80, 80), "group: 2"), (SHAPE, "pad: 1 bias_term: false"), ((2, 32, 8, 20, 40), "")],
    ids=["2-D", "groups", "pad", "3-D"],
)
def test_top_and_gradients(shape: tuple[int, ...], settings: str) -> None:
    """A layer by this way has the top and the gradients of float64."""
    layer = randomise(
        one_layer(f'type: "Convolution" convolution_param {{ num_output: {OUTPUTS} kernel_size: 1 {settings} }}', shape)
    )
    x = channels_last(draw(*shape)).requires_grad_()
    single, double = run(layer, x), run(layer.double(), x.detach().double().requires_grad_())
    assert set(single[0].grad_fn._saved_dilation) == {2}  # type: ignore[union-attr]
    for ours, exact in zip(single, double, strict=True):
        error = (ours.double() - exact).norm() / exact.norm()
        assert error < 1e-5


def run(layer: torch.nn.Module, x: Tensor) -> list[Tensor]:
    """The top, the gradients of a sum of it, and those of a sum of the gradient of ``x``, by ``x`` and parameters."""
    top = layer(x)
    weights = list(layer.parameters())
    cube = (top**3).sum()
    first = torch.autograd.grad(cube, [x, *weights], create_graph=True)
    second = torch.autograd.grad((first[0] ** 2).sum(), [x, weights[0]])
    return [top, *first, *second]
