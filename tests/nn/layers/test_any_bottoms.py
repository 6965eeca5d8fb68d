"""What every layer must stand: any memory format, no samples, torch's exporters."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from bpt.config.proto import bpt_pb2 as pb
from bpt.nn.layers import Layer
from tests.nn.layers.joining_layers import CASES as JOINING
from tests.nn.layers.joining_layers import SHAPE, Case
from tests.nn.layers.one_bottom_layers import CASES as ONE_BOTTOM
from tests.nn.layers.three_axes_layers import CASES as THREE_AXES
from tests.support.marks import few
from tests.support.one_layer import tops_of

PLANES = ONE_BOTTOM | JOINING
CASES = PLANES | THREE_AXES
LAST = {4: torch.channels_last, 5: torch.channels_last_3d}
every_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
some_cases = pytest.mark.parametrize("case", few(PLANES.values(), every=3), ids=PLANES.keys())


def run(case: Case, layer: Layer, bottoms: tuple[Tensor, ...]) -> tuple[list[Tensor], list[Tensor]]:
    """The tops, and the gradients of a weighted sum of them by the blobs (none for labels) and the parameters."""
    leaves = [bottom.requires_grad_() for bottom in bottoms[: case.blobs]]
    leaves += [blob for blob in layer.blobs if blob.requires_grad]
    tops = tops_of(layer, *bottoms)
    sums = [(top * torch.linspace(0.5, 1, top.numel()).reshape(top.shape)).sum() for top in tops if top.requires_grad]
    grads = torch.autograd.grad(sums, leaves) if sums else ()
    return [top.detach() for top in tops], list(grads)


def channels_last(bottoms: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return tuple(b.to(memory_format=LAST[b.dim()]) if b.dim() in LAST else b for b in bottoms)


@every_case
def test_channels_last_gives_the_same(case: Case) -> None:
    tops, grads = run(case, case.layer(), case.bottoms())
    last_tops, last_grads = run(case, case.layer(), channels_last(case.bottoms()))
    torch.testing.assert_close(last_tops, tops)
    torch.testing.assert_close(last_grads, grads, rtol=1e-4, atol=1e-5)


@every_case
def test_no_samples(case: Case) -> None:
    layer, bottoms = case.layer(0), case.bottoms(0)
    before = [blob.detach().clone() for blob in layer.blobs]
    tops, grads = run(case, layer, bottoms)
    for empty, full in zip(tops, run(case, case.layer(), case.bottoms())[0], strict=True):
        assert (empty.dim(), empty.shape[1:]) == (full.dim(), full.shape[1:])
        assert not empty.any()  # nothing, or zero for what is a mean over the batch
    assert case.shape == SHAPE or [len(top) for top in tops] == [0]
    assert [grad.shape for grad in grads[: case.blobs]] == [(0, *case.shape[1:])] * len(grads[: case.blobs])
    assert not any(grad.any() for grad in grads)
    assert all(map(torch.equal, layer.blobs, before))


@some_cases
def test_exports_for_any_batch_size(case: Case) -> None:
    layer = case.layer(phase=pb.TEST).eval()
    batch = ({0: torch.export.Dim.DYNAMIC},) * len(case.bottoms())
    program = torch.export.export(layer, case.bottoms(), dynamic_shapes=(batch,))
    larger = case.bottoms(9)
    torch.testing.assert_close(program.module()(*larger), layer(*larger))


@some_cases
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")  # torch's own, of a Function
def test_compiles(case: Case) -> None:
    expected = run(case, case.layer(), case.bottoms())
    layer = case.layer()
    layer.compile(backend="aot_eager", fullgraph=case.shape == SHAPE)
    torch.testing.assert_close(run(case, layer, case.bottoms()), expected)


@pytest.mark.gpu
@pytest.mark.parametrize("last", [False, True], ids=["contiguous", "channels last"])
@pytest.mark.parametrize("case", [*JOINING.values(), *THREE_AXES.values()], ids=[*JOINING, *THREE_AXES])
def test_a_gpu_gives_the_same(case: Case, last: bool) -> None:
    bottoms = tuple(bottom.cuda() for bottom in case.bottoms())
    tops, grads = run(case, case.layer().cuda(), channels_last(bottoms) if last else bottoms)
    expected_tops, expected_grads = run(case, case.layer(), case.bottoms())
    if "STOCHASTIC" not in case.body and "Dropout" not in case.body:
        torch.testing.assert_close([top.cpu() for top in tops], expected_tops)
        torch.testing.assert_close([grad.cpu() for grad in grads], expected_grads, rtol=1e-4, atol=1e-4)
