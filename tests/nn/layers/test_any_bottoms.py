"""What every layer that joins, cuts or judges blobs must stand: any memory format, no samples, torch's exporters."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from bpt.nn.layers import Layer
from tests.support.golden_cases import GOLDEN
from tests.support.marks import few
from tests.support.one_layer import one_layer, tops_of

SHAPE = (6, 4, 3, 2)
INFOGAIN = f'type: "InfogainLoss" infogain_loss_param {{ source: "{GOLDEN / "layers/infogain_H_dev.binaryproto"}" }}'


@dataclass(frozen=True)
class Case:
    """A layer's text, how many blobs of SHAPE it reads before labels (if ``labels``), and its tops."""

    body: str
    blobs: int = 1
    labels: bool = False
    tops: int = 1

    def layer(self, samples: int = SHAPE[0]) -> Layer:
        shapes = [(samples, *SHAPE[1:])] * self.blobs + [(samples, *SHAPE[2:])] * self.labels
        return one_layer(self.body, *shapes, tops=self.tops)

    def bottoms(self, samples: int = SHAPE[0]) -> tuple[Tensor, ...]:
        generator = torch.Generator().manual_seed(samples)
        blobs = tuple(torch.rand(samples, *SHAPE[1:], generator=generator) for _ in range(self.blobs))
        labels = torch.randint(0, SHAPE[1], (samples, *SHAPE[2:]), generator=generator).float()
        return (*blobs, labels) if self.labels else blobs


CASES = {
    "sum": Case('type: "Eltwise"', blobs=3),
    "weighted sum": Case('type: "Eltwise" eltwise_param { coeff: 2 coeff: -1 }', blobs=2),
    "product": Case('type: "Eltwise" eltwise_param { operation: PROD }', blobs=3),
    "divided product": Case('type: "Eltwise" eltwise_param { operation: PROD stable_prod_grad: false }', blobs=2),
    "maximum": Case('type: "Eltwise" eltwise_param { operation: MAX }', blobs=3),
    "concat": Case('type: "Concat"', blobs=2),
    "concat, last axis": Case('type: "Concat" concat_param { axis: -1 }', blobs=2),
    "slice": Case('type: "Slice"', tops=2),
    "slice at points": Case('type: "Slice" slice_param { axis: 1 slice_point: 1 }', tops=2),
    "split": Case('type: "Split"', tops=3),
    "flatten": Case('type: "Flatten"'),
    "flatten, middle": Case('type: "Flatten" flatten_param { axis: 1 end_axis: 2 }'),
    "mvn": Case('type: "MVN"'),
    "mvn across channels": Case('type: "MVN" mvn_param { across_channels: true eps: 0.1 }'),
    "mvn, mean only": Case('type: "MVN" mvn_param { normalize_variance: false }'),
    "argmax": Case('type: "ArgMax" argmax_param { top_k: 3 out_max_val: true }'),
    "argmax along an axis": Case('type: "ArgMax" argmax_param { axis: 1 }'),
    "threshold": Case('type: "Threshold" threshold_param { threshold: 0.5 }'),
    "reduction": Case('type: "Reduction" reduction_param { axis: 2 operation: MEAN coeff: 2 }'),
    "reduction of a sample": Case('type: "Reduction" reduction_param { axis: 1 operation: SUMSQ }'),
    "reduction of all": Case('type: "Reduction" reduction_param { operation: MEAN coeff: 3 }'),
    "softmax": Case('type: "Softmax"'),
    "softmax, last axis": Case('type: "Softmax" softmax_param { axis: -1 }'),
    "softmax loss": Case('type: "SoftmaxWithLoss"', labels=True),
    "softmax loss, two tops": Case('type: "SoftmaxWithLoss" loss_param { ignore_label: 1 }', labels=True, tops=2),
    "infogain loss": Case(INFOGAIN, labels=True),
    "infogain loss, two tops": Case(f"{INFOGAIN} loss_param {{ ignore_label: 1 }}", labels=True, tops=2),
    "euclidean loss": Case('type: "EuclideanLoss"', blobs=2),
    "accuracy": Case('type: "Accuracy"', labels=True),
    "accuracy of classes": Case('type: "Accuracy" accuracy_param { ignore_label: 1 top_k: 2 }', labels=True, tops=2),
}
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
