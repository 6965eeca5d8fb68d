"""What every layer that joins, cuts or judges blobs must stand: any memory format, no samples, torch's exporters."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from bpt.nn.layers import Layer
from tests.nn.layers.joining_layers import CASES, SHAPE, Case
from tests.support.marks import few
from tests.support.one_layer import tops_of

every_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())


def run(case: Case, layer: Layer, bottoms: tuple[Tensor, ...]) -> tuple[list[Tensor], list[Tensor]]:
    """The tops, and the gradients of a weighted sum of them by the blobs (none for labels)."""
    leaves = [bottom.requires_grad_() for bottom in bottoms[: case.blobs]]
    tops = tops_of(layer, *bottoms)
    sums = [(top * torch.linspace(0.5, 1, top.numel()).reshape(top.shape)).sum() for top in tops if top.requires_grad]
    grads = torch.autograd.grad(sums, leaves) if sums else ()
    return [top.detach() for top in tops], list(grads)


@every_case
def test_channels_last_gives_the_same(case: Case) -> None:
    plain = run(case, case.layer(), case.bottoms())
    last = tuple(
        bottom.to(memory_format=torch.channels_last) if bottom.dim() == 4 else bottom for bottom in case.bottoms()
    )
    torch.testing.assert_close(run(case, case.layer(), last), plain)


@every_case
def test_no_samples(case: Case) -> None:
    tops, grads = run(case, case.layer(0), case.bottoms(0))
    for empty, full in zip(tops, run(case, case.layer(), case.bottoms())[0], strict=True):
        assert empty.dim() == full.dim()
        assert not empty.any()  # nothing, or zero for what is a mean over the batch
    assert [grad.shape for grad in grads] == [(0, *SHAPE[1:])] * len(grads)


@pytest.mark.parametrize("case", few(CASES.values(), every=3), ids=CASES.keys())
def test_exports_for_any_batch_size(case: Case) -> None:
    layer = case.layer()
    batch = ({0: torch.export.Dim.DYNAMIC},) * len(case.bottoms())
    program = torch.export.export(layer, case.bottoms(), dynamic_shapes=(batch,))
    larger = case.bottoms(9)
    torch.testing.assert_close(program.module()(*larger), layer(*larger))


@pytest.mark.parametrize("case", few(CASES.values(), every=3), ids=CASES.keys())
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")  # torch's own, of a Function
def test_compiles(case: Case) -> None:
    expected = run(case, case.layer(), case.bottoms())
    layer = case.layer()
    layer.compile(backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(run(case, layer, case.bottoms()), expected)


@every_case
@pytest.mark.gpu
def test_a_gpu_gives_the_same(case: Case) -> None:
    expected = run(case, case.layer(), case.bottoms())
    layer = case.layer().cuda()
    bottoms = tuple(bottom.cuda() for bottom in case.bottoms())
    tops = tops_of(layer, *bottoms)
    torch.testing.assert_close([top.cpu() for top in tops], expected[0])
